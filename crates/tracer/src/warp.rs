//! Reconstructs a warp's instructions from its events, with divergence.
//!
//! Every lane has a last event. Lanes that reach an event from the same last event take the same
//! path. The common beginning of the paths of lanes that diverged is one execution. Where lanes of
//! different last events reconverge, the common end of their paths is one execution too.

use std::collections::HashMap;

use crate::{
    Error,
    flow::{Flow, Goal},
    raw::{Event, Kind},
    sass::{INSTRUCTION_BYTES, Instruction, Next},
};

/// One execution of an instruction by a warp.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Executed {
    /// Index of the instruction in its function.
    pub at: usize,
    /// Active lanes, as far as known; exact for accesses.
    pub mask: u32,
    /// The event, for its addresses.
    pub event: Option<usize>,
}

/// Path of lanes since an event: the instructions, and the position of each in the result.
type Walked = Vec<(usize, usize)>;

/// State of the reconstruction.
struct Warp<'a> {
    code: &'a [Instruction],
    done: Vec<Executed>,
    /// The last event of each lane.
    last: [usize; 32],
    /// Return addresses of the lanes' calls, by their last event.
    calls: HashMap<usize, Vec<usize>>,
    /// Instruction at which lanes continue after an event.
    resume: HashMap<usize, usize>,
    walked: HashMap<usize, Walked>,
    /// The first event after another one at which lanes may be inactive: its instruction, its
    /// position in the result, its index.
    follow: HashMap<usize, (usize, usize, usize)>,
    /// Instructions that leave an event for any active lane.
    shown: Vec<bool>,
}

/// Returns a warp's instructions from all its events in order.
///
/// # Errors
/// [`Error::NoPath`] if no path connects two events, [`Error::Raw`] if the first event is not the
/// warp's start.
pub fn assemble(code: &[Instruction], flow: &mut Flow<'_>, events: &[Event]) -> Result<Vec<Executed>, Error> {
    let Some(first) = events.first().filter(|event| event.kind == Kind::Enter) else {
        return Err(Error::Raw("a warp whose beginning was not seen"));
    };
    let mut warp = Warp {
        code,
        done: Vec::new(),
        last: [0; 32],
        calls: HashMap::new(),
        resume: HashMap::from([(0, 0)]),
        walked: HashMap::new(),
        follow: HashMap::new(),
        shown: flow.events().to_vec(),
    };
    for (number, event) in events.iter().enumerate().skip(1) {
        let at = (event.pc / INSTRUCTION_BYTES) as usize;
        if at >= code.len() {
            return Err(Error::Raw("an event outside its function"));
        }
        warp.walk(flow, event.mask, Goal::At(at))?;
        warp.done.push(Executed { at, mask: event.mask, event: Some(number) });
        warp.arrive(number, event, at);
    }
    warp.walk(flow, first.mask, Goal::Exit)?;
    Ok(warp.done)
}

impl Warp<'_> {
    /// Moves lanes to a goal, in groups by their last event.
    fn walk(&mut self, flow: &mut Flow<'_>, mask: u32, goal: Goal) -> Result<(), Error> {
        let mut groups: Vec<(usize, u32)> = Vec::new();
        for lane in (0..32).filter(|lane| mask >> lane & 1 == 1) {
            let last = self.last[lane];
            match groups.iter_mut().find(|(event, _)| *event == last) {
                Some((_, lanes)) => *lanes |= 1 << lane,
                None => groups.push((last, 1 << lane)),
            }
        }
        // The group that is furthest goes last: its path has the common end.
        groups.sort_unstable();
        let mut paths = Vec::new();
        for &(last, lanes) in &groups {
            paths.push((last, lanes, flow.path(self.resume[&last], goal)?));
        }
        let Some((last, lanes, main)) = paths.pop() else { return Ok(()) };
        for (other, lanes, path) in paths {
            // Exiting lanes do not reconverge.
            let own =
                if goal == Goal::Exit { path.len() } else { path.len() - self.common_end(&path, &main) };
            self.emit(other, lanes, &path[..own], goal);
        }
        self.emit(last, if goal == Goal::Exit { lanes } else { mask }, &main, goal);
        Ok(())
    }

    /// Returns the number of instructions at the end of two paths that are one execution.
    fn common_end(&self, path: &[usize], main: &[usize]) -> usize {
        let same = path.iter().rev().zip(main.iter().rev()).take_while(|(a, b)| a == b).count();
        let end = &path[path.len() - same..];
        end.iter().position(|&at| self.code[at].reconverges()).map_or(same, |first| same - first)
    }

    /// Appends a path from an event, merged with what other lanes executed from there.
    fn emit(&mut self, last: usize, lanes: u32, path: &[usize], goal: Goal) {
        let (mut event, mut known, mut place) = (last, 0, None);
        let mut done = 0;
        while done < path.len() {
            let at = path[done];
            let walked = self.walked.entry(event).or_default();
            if let Some(&(same, where_)) = walked.get(known).filter(|(same, _)| *same == at) {
                // Other lanes were here with these lanes.
                self.join(same, where_, lanes);
                (known, place) = (known + 1, Some(where_));
            } else if let Some(&(same, where_, next)) =
                self.follow.get(&event).filter(|_| known == walked.len())
                && same == at
            {
                // An event of other lanes, at which these lanes were inactive: they continue with
                // them.
                (event, known, place) = (next, 0, Some(where_));
            } else {
                break;
            }
            done += 1;
        }
        let walked = self.walked.entry(event).or_default();
        let mut longer: Walked = walked[..known].to_vec();
        for &at in &path[done..] {
            place = Some(self.done.len());
            longer.push((at, self.done.len()));
            let mask = if off(self.code, &self.shown, at) { 0 } else { lanes };
            self.done.push(Executed { at, mask, event: None });
        }
        if longer.len() > walked.len() {
            *walked = longer;
        }
        // Lanes that end at an exit leave there.
        if let (Some(place), Goal::Exit) = (place, goal) {
            self.done[place].mask |= lanes;
        }
    }

    /// Adds lanes to an execution, unless inactive lanes would leave an event there.
    fn join(&mut self, at: usize, place: usize, lanes: u32) {
        if !off(self.code, &self.shown, at) {
            self.done[place].mask |= lanes;
        }
    }

    /// Records that lanes have reached an event and continue from it.
    fn arrive(&mut self, number: usize, event: &Event, at: usize) {
        let lane = event.mask.trailing_zeros().min(31) as usize;
        let mut calls = self.calls.get(&self.last[lane]).cloned().unwrap_or_default();
        let resume = match (&self.code[at].next, event.kind) {
            (Next::Call(Some(target)), Kind::Call) => {
                calls.push(at + 1);
                *target
            }
            (Next::Return, _) => calls.pop().unwrap_or(at + 1),
            _ => at + 1,
        };
        self.resume.insert(number, resume);
        if self.code[at].conditional {
            for lane in (0..32).filter(|lane| event.mask >> lane & 1 == 1) {
                self.follow.entry(self.last[lane]).or_insert((at, self.done.len() - 1, number));
            }
        }
        if !calls.is_empty() {
            self.calls.insert(number, calls);
        }
        for lane in (0..32).filter(|lane| event.mask >> lane & 1 == 1) {
            self.last[lane] = number;
        }
        // Drops events to which no lane can return.
        if self.resume.len() > 64 {
            let oldest = self.last.iter().copied().min().unwrap_or(0);
            self.resume.retain(|&event, _| event >= oldest);
            self.walked.retain(|&event, _| event >= oldest);
            self.calls.retain(|&event, _| event >= oldest);
            self.follow.retain(|&event, _| event >= oldest);
        }
    }
}

/// Returns true if lanes that execute an instruction always leave an event or exit there.
fn off(code: &[Instruction], shown: &[bool], at: usize) -> bool {
    shown[at] || code[at].conditional && code[at].next == Next::Exit
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::Lanes;

    fn instruction(opcode: &str, conditional: bool, next: Next) -> Instruction {
        Instruction { opcode: opcode.to_owned(), conditional, written: None, read: vec![], next }
    }

    fn event(at: u32, mask: u32, kind: Kind) -> Event {
        Event {
            pc: at * INSTRUCTION_BYTES,
            mask,
            block: 0,
            warp: 0,
            bytes: 4,
            kind,
            lanes: Lanes::Strided(0, 4),
        }
    }

    /// Returns the executed instructions with their masks.
    fn run(code: &[Instruction], events: &[Event]) -> Vec<(usize, u32)> {
        let mut shown = vec![false; code.len()];
        events.iter().skip(1).for_each(|event| shown[(event.pc / INSTRUCTION_BYTES) as usize] = true);
        let done = assemble(code, &mut Flow::new(code, shown, None), events).unwrap();
        done.iter().map(|executed| (executed.at, executed.mask)).collect()
    }

    #[test]
    fn lanes_that_a_predicate_turns_off_go_along() {
        // 0: plain; 1: @P LDS; 2: plain; 3: BAR; 4: exit
        let code = [
            instruction("IADD3", false, Next::On),
            instruction("LDS", true, Next::On),
            instruction("FADD", false, Next::On),
            instruction("BAR", false, Next::On),
            instruction("EXIT", false, Next::Exit),
        ];
        let events = [event(0, 0xff, Kind::Enter), event(1, 0x0f, Kind::Shared), event(3, 0xff, Kind::Mark)];
        assert_eq!(run(&code, &events), [(0, 0xff), (1, 0x0f), (2, 0xff), (3, 0xff), (4, 0xff)]);
    }

    #[test]
    fn lanes_that_part_walk_alone_until_they_meet() {
        // 0: BSSY; 1: if (p) goto 4; 2: LDS; 3: goto 5; 4: STS; 5: BSYNC; 6: plain; 7: STG; 8: exit
        let code = [
            instruction("BSSY", false, Next::On),
            instruction("BRA", true, Next::Jump(vec![4])),
            instruction("LDS", false, Next::On),
            instruction("BRA", false, Next::Jump(vec![5])),
            instruction("STS", false, Next::On),
            instruction("BSYNC", false, Next::On),
            instruction("IADD3", false, Next::On),
            instruction("STG", false, Next::On),
            instruction("EXIT", false, Next::Exit),
        ];
        let events = [
            event(0, 0xff, Kind::Enter),
            event(2, 0x0f, Kind::Shared),
            event(4, 0xf0, Kind::Shared),
            event(7, 0xff, Kind::Global),
        ];
        let expected = [
            (0, 0xff),
            (1, 0xff),
            (2, 0x0f),
            (4, 0xf0),
            (3, 0x0f),
            (5, 0xff),
            (6, 0xff),
            (7, 0xff),
            (8, 0xff),
        ];
        assert_eq!(run(&code, &events), expected);
    }

    #[test]
    fn lanes_leave_by_the_exit_that_takes_them() {
        // 0: @P EXIT; 1: LDG; 2: exit
        let code = [
            instruction("EXIT", true, Next::Exit),
            instruction("LDG", false, Next::On),
            instruction("EXIT", false, Next::Exit),
        ];
        let events = [event(0, 0xff, Kind::Enter), event(1, 0x0f, Kind::Global)];
        assert_eq!(run(&code, &events), [(0, 0xf0), (1, 0x0f), (2, 0x0f)]);
        assert_eq!(run(&code, &events[..1]), [(0, 0xff)]);
    }
}
