//! A warp's path between two of its events.
//!
//! A path cannot contain an unpredicated instruction that leaves an event, since that event would
//! have been recorded. Most often one path remains. Otherwise the hardware's counts decide: a loop
//! runs its average number of rounds, and a branch is taken with its average frequency, with
//! remainders carried over. Without counts the shortest path is chosen. Both kinds of choices are
//! counted.

use std::collections::HashMap;

use crate::{
    Error,
    counts::Counts,
    edges,
    sass::{Instruction, Next},
};

/// End of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Goal {
    /// This instruction, excluded from the path.
    At(usize),
    /// An exit, included in the path.
    Exit,
}

/// Steps to a goal from every instruction; `None` if it is unreachable.
type Distances = Vec<Option<u32>>;

/// The paths of one kernel.
pub struct Flow<'a> {
    code: &'a [Instruction],
    /// Instructions at which events were seen.
    events: Vec<bool>,
    /// Edge counts, where the instruction counts determine them.
    edges: HashMap<(usize, usize), f64>,
    distances: HashMap<Goal, Distances>,
    /// Remainder carried over for the taken edge of each branch.
    carried: Vec<f64>,
    /// Branches with more than one possible way.
    pub choices: u64,
}

impl<'a> Flow<'a> {
    /// Creates the paths of a kernel with events at these instructions.
    pub fn new(code: &'a [Instruction], events: Vec<bool>, counts: Option<&'a Counts>) -> Self {
        let counts = counts.filter(|counts| counts.0.len() >= code.len());
        let edges = counts.map(|counts| edges::solve(code, counts)).unwrap_or_default();
        Self { code, events, edges, distances: HashMap::new(), carried: vec![0.0; code.len()], choices: 0 }
    }

    /// Returns the instructions at which events were seen.
    pub fn events(&self) -> &[bool] {
        &self.events
    }

    /// Returns the instructions from `from` to the goal.
    ///
    /// # Errors
    /// [`Error::NoPath`] if there is none.
    pub fn path(&mut self, from: usize, goal: Goal) -> Result<Vec<usize>, Error> {
        if !self.distances.contains_key(&goal) {
            let distances = self.measure(goal);
            self.distances.insert(goal, distances);
        }
        let mut path = Vec::new();
        let mut planned: HashMap<usize, u64> = HashMap::new();
        let mut at = from;
        loop {
            if goal == Goal::At(at) {
                return Ok(path);
            }
            let distances = &self.distances[&goal];
            let reach = |&next: &usize| distances.get(next).copied().flatten().is_some();
            if distances.get(at).copied().flatten().is_none() {
                return Err(Error::NoPath {
                    from,
                    to: if let Goal::At(to) = goal { Some(to) } else { None },
                });
            }
            path.push(at);
            let instruction = &self.code[at];
            let open: Vec<usize> = successors(self.code, at).into_iter().filter(reach).collect();
            let may_exit = goal == Goal::Exit && instruction.next == Next::Exit;
            at = match (&open[..], may_exit) {
                ([], _) => return Ok(path),
                ([only], false) => *only,
                (_, true) => {
                    self.choices += 1;
                    return Ok(path);
                }
                _ => {
                    self.choices += 1;
                    self.choose(at, &open, goal, &mut planned)
                }
            };
            if path.len() > 50_000_000 {
                return Err(Error::NoPath { from, to: None });
            }
        }
    }

    /// Returns true if every path through an instruction leaves an event.
    fn blocks(&self, at: usize) -> bool {
        self.events[at] && !self.code[at].conditional
    }

    /// Measures the steps to the goal, backwards from it.
    fn measure(&self, goal: Goal) -> Distances {
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); self.code.len()];
        for at in 0..self.code.len() {
            for next in successors(self.code, at) {
                before[next].push(at);
            }
        }
        let mut distances = vec![None; self.code.len()];
        let mut queue = std::collections::VecDeque::new();
        let mut reach = |at: usize, steps: u32, queue: &mut std::collections::VecDeque<usize>| {
            if distances[at].is_none() {
                distances[at] = Some(steps);
                queue.push_back(at);
            }
            distances[at]
        };
        match goal {
            Goal::At(to) => {
                reach(to, 0, &mut queue);
            }
            Goal::Exit => {
                let exits = (0..self.code.len()).filter(|&at| self.code[at].next == Next::Exit);
                exits.for_each(|at| {
                    reach(at, 0, &mut queue);
                });
            }
        }
        while let Some(at) = queue.pop_front() {
            let steps = reach(at, 0, &mut queue).unwrap_or(0);
            for &earlier in &before[at] {
                if !self.blocks(earlier) {
                    reach(earlier, steps + 1, &mut queue);
                }
            }
        }
        distances
    }

    /// Chooses the successor at an ambiguous branch.
    fn choose(&mut self, at: usize, open: &[usize], goal: Goal, planned: &mut HashMap<usize, u64>) -> usize {
        let nearest = *open.iter().min_by_key(|&&next| self.distances[&goal][next]).unwrap_or(&open[0]);
        let &[taken, on] = open else { return nearest };
        let Some(share) = self.taken_share(at, taken, on) else { return nearest };
        if taken <= at {
            // A loop without events: its average number of rounds, each time it is entered.
            let rounds = planned.entry(at).or_insert_with(|| {
                let exact = (share / (1.0 - share).max(1e-9)).min(1e7) + self.carried[at];
                self.carried[at] = exact - exact.round();
                exact.round().max(0.0) as u64
            });
            if *rounds > 0 {
                *rounds -= 1;
                return taken;
            }
            planned.remove(&at);
            return on;
        }
        self.carried[at] += share;
        if self.carried[at] >= 0.5 {
            self.carried[at] -= 1.0;
            return taken;
        }
        on
    }

    /// Returns the fraction of executions in which a branch was taken.
    fn taken_share(&self, at: usize, taken: usize, on: usize) -> Option<f64> {
        let (taken, on) = (self.edges.get(&(at, taken))?, self.edges.get(&(at, on))?);
        (taken + on > 0.0).then(|| taken / (taken + on))
    }
}

/// Returns the successors of an instruction within its function.
pub(crate) fn successors(code: &[Instruction], at: usize) -> Vec<usize> {
    let instruction = &code[at];
    let on = (at + 1 < code.len()).then_some(at + 1);
    match &instruction.next {
        Next::On | Next::Call(_) => on.into_iter().collect(),
        Next::Jump(targets) => {
            let mut all: Vec<usize> = targets.iter().copied().filter(|&to| to < code.len()).collect();
            all.extend(on.filter(|_| instruction.conditional));
            all.dedup();
            all
        }
        Next::Exit | Next::Return => on.filter(|_| instruction.conditional).into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> Instruction {
        Instruction {
            opcode: "IADD3".to_owned(),
            conditional: false,
            written: None,
            read: vec![],
            next: Next::On,
        }
    }

    fn jump(to: usize, conditional: bool) -> Instruction {
        Instruction { opcode: "BRA".to_owned(), next: Next::Jump(vec![to]), conditional, ..plain() }
    }

    fn exit(conditional: bool) -> Instruction {
        Instruction { opcode: "EXIT".to_owned(), next: Next::Exit, conditional, ..plain() }
    }

    #[test]
    fn an_unrecorded_event_excludes_a_path() {
        // 0: if (p) goto 3; 1: event; 2: goto 4; 3: plain; 4: event; 5: exit
        let code = [jump(3, true), plain(), jump(4, false), plain(), plain(), exit(false)];
        let mut flow = Flow::new(&code, vec![false, true, false, false, true, false], None);
        assert_eq!(flow.path(0, Goal::At(4)).unwrap(), [0, 3]);
        assert_eq!(flow.path(0, Goal::At(1)).unwrap(), [0]);
        assert_eq!(flow.path(5, Goal::Exit).unwrap(), [5]);
        assert_eq!(flow.choices, 0);
        assert!(flow.path(5, Goal::At(1)).is_err());
    }

    #[test]
    fn an_early_exit_is_taken_where_the_way_on_would_have_been_seen() {
        let code = [plain(), exit(true), plain(), exit(false)];
        let mut flow = Flow::new(&code, vec![false, false, true, false], None);
        assert_eq!(flow.path(0, Goal::Exit).unwrap(), [0, 1]);
        assert_eq!(flow.path(0, Goal::At(2)).unwrap(), [0, 1]);
        assert_eq!(flow.path(3, Goal::Exit).unwrap(), [3]);
    }

    #[test]
    fn counts_say_how_often_a_loop_without_events_runs() {
        // 0: plain; 1: plain; 2: if (p) goto 1; 3: event
        let code = [plain(), plain(), jump(1, true), plain()];
        let counts = Counts(vec![4, 40, 40, 4]);
        let mut flow = Flow::new(&code, vec![false, false, false, true], Some(&counts));
        let path = flow.path(0, Goal::At(3)).unwrap();
        assert_eq!(path.iter().filter(|&&at| at == 1).count(), 10);
        let mut flow = Flow::new(&code, vec![false, false, false, true], None);
        assert_eq!(flow.path(0, Goal::At(3)).unwrap(), [0, 1, 2]);
        assert_eq!(flow.choices, 1);
    }

    #[test]
    fn counts_share_out_the_two_sides_of_a_branch() {
        // 0: if (p) goto 3; 1: plain; 2: goto 4; 3: plain; 4: event. A quarter is taken.
        let code = [jump(3, true), plain(), jump(4, false), plain(), plain()];
        let counts = Counts(vec![100, 75, 75, 25, 100]);
        let mut flow = Flow::new(&code, vec![false, false, false, false, true], Some(&counts));
        let taken = (0..8).filter(|_| flow.path(0, Goal::At(4)).unwrap() == [0, 3]).count();
        assert_eq!(taken, 2);
    }

    #[test]
    fn counts_reach_a_loop_that_is_entered_in_two_ways() {
        // 0: if (p) goto 2; 1: plain; 2: plain; 3: if (p) goto 2; 4: if (p) goto 6; 5: plain; 6:
        // event
        let code = [jump(2, true), plain(), plain(), jump(2, true), jump(6, true), plain(), plain()];
        let counts = Counts(vec![2, 1, 14, 14, 2, 1, 2]);
        let mut flow = Flow::new(&code, vec![false, false, false, false, false, false, true], Some(&counts));
        let all: usize = (0..2).map(|_| flow.path(0, Goal::At(6)).unwrap().len()).sum();
        assert_eq!(all as u64, counts.total() - 2);
    }
}
