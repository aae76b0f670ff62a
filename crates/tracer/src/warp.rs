//! A warp's instructions from its events, divergence included.
//!
//! Every lane remembers the last event it took part in. Lanes that come to an event from the same last one walk there
//! together. What lanes walked from a common event before they parted is the beginning of both paths: it was one
//! execution for both. Where lanes of several last events meet, the end of their paths from the point of
//! reconvergence on is one execution too.

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
    /// Number of the instruction in its function.
    pub at: usize,
    /// Lanes that took part, as far as it is known: those of an access are exact.
    pub mask: u32,
    /// The event, for its addresses.
    pub event: Option<usize>,
}

/// What lanes did since an event: the instructions, and where each stands in the result.
type Walked = Vec<(usize, usize)>;

/// A warp that is being put together.
struct Warp<'a> {
    code: &'a [Instruction],
    done: Vec<Executed>,
    /// The last event of each lane.
    last: [usize; 32],
    /// Return addresses of the lanes' calls, by their last event.
    calls: HashMap<usize, Vec<usize>>,
    /// Where lanes go on after an event.
    resume: HashMap<usize, usize>,
    walked: HashMap<usize, Walked>,
    /// Instructions that are events when any lane takes part.
    shown: Vec<bool>,
}

/// The instructions of a warp, from all of its events in order.
///
/// # Errors
/// [`Error::NoPath`] if the machine code has no way from one event to the next, [`Error::Raw`] if the first event is not the
/// warp's beginning.
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
    /// Brings lanes to a goal, in groups by their last event.
    fn walk(&mut self, flow: &mut Flow<'_>, mask: u32, goal: Goal) -> Result<(), Error> {
        let mut groups: Vec<(usize, u32)> = Vec::new();
        for lane in (0..32).filter(|lane| mask >> lane & 1 == 1) {
            let last = self.last[lane];
            match groups.iter_mut().find(|(event, _)| *event == last) {
                Some((_, lanes)) => *lanes |= 1 << lane,
                None => groups.push((last, 1 << lane)),
            }
        }
        // The group that came furthest goes last: its path has the common end.
        groups.sort_unstable();
        let mut paths = Vec::new();
        for &(last, lanes) in &groups {
            paths.push((last, lanes, flow.path(self.resume[&last], goal)?));
        }
        let Some((last, lanes, main)) = paths.pop() else { return Ok(()) };
        for (other, lanes, path) in paths {
            // Lanes that exit do not meet again.
            let own = if goal == Goal::Exit { path.len() } else { path.len() - self.common_end(&path, &main) };
            self.emit(other, lanes, &path[..own]);
        }
        self.emit(last, if goal == Goal::Exit { lanes } else { mask }, &main);
        Ok(())
    }

    /// How many instructions at the end of two paths are one execution.
    fn common_end(&self, path: &[usize], main: &[usize]) -> usize {
        let same = path.iter().rev().zip(main.iter().rev()).take_while(|(a, b)| a == b).count();
        let end = &path[path.len() - same..];
        end.iter().position(|&at| self.code[at].reconverges()).map_or(same, |first| same - first)
    }

    /// Appends a path from an event; what others walked from the same event is joined, not repeated.
    fn emit(&mut self, last: usize, lanes: u32, path: &[usize]) {
        let before = self.walked.entry(last).or_default();
        let joined = before.iter().zip(path).take_while(|((at, _), next)| at == *next).count();
        for &(_, place) in &before[..joined] {
            self.done[place].mask |= lanes;
        }
        let mut walked: Walked = before[..joined].to_vec();
        for &at in &path[joined..] {
            // What an event would have shown was turned off for all lanes; an exit has those that it takes added.
            let off = self.shown[at] || self.code[at].conditional && self.code[at].next == Next::Exit;
            walked.push((at, self.done.len()));
            self.done.push(Executed { at, mask: if off { 0 } else { lanes }, event: None });
        }
        // Lanes that end at an exit leave by it.
        if let Some(&(at, place)) = walked.last()
            && self.code[at].next == Next::Exit
            && walked.len() == path.len()
        {
            self.done[place].mask |= lanes;
        }
        if walked.len() > before.len() {
            *before = walked;
        }
    }

    /// Lanes have reached an event and go on from it.
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
        if !calls.is_empty() {
            self.calls.insert(number, calls);
        }
        for lane in (0..32).filter(|lane| event.mask >> lane & 1 == 1) {
            self.last[lane] = number;
        }
        // What no lane can come back to is forgotten.
        let last = self.last;
        if self.resume.len() > 64 {
            self.resume.retain(|event, _| last.contains(event));
            self.walked.retain(|event, _| last.contains(event));
            self.calls.retain(|event, _| last.contains(event));
        }
    }
}
