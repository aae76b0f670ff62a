//! A warp scheduler: greedy, then oldest.

use super::{NEVER, Outside, Sm};
use crate::{
    Error,
    params::{Params, UNIT_MEMORY, UNIT_RETIRE, UNITS},
    stats::Cause,
};

#[derive(Debug)]
pub(super) struct Sched {
    /// Its warps, the oldest first.
    pub(super) order: Vec<u16>,
    pub(super) free_slots: Vec<u16>,
    /// The warp that issued last.
    greedy: u16,
    /// The next cycle at which it may find something to issue.
    pub(super) next: u64,
    /// When each of its units takes the next instruction.
    pub(super) unit_free: [u64; UNITS],
    /// Since when it has nothing to issue, and why.
    idle_since: u64,
    idle_cause: Cause,
}

const NO_WARP: u16 = u16::MAX;

/// What a look at the warps finds.
enum Pick {
    Warp(usize),
    Nothing { next: u64, cause: Cause },
}

impl Sched {
    pub(super) fn new(index: u32, params: &Params) -> Self {
        let slots = (index..params.warps).step_by(params.schedulers as usize);
        Self {
            order: Vec::new(),
            free_slots: slots.map(|slot| slot as u16).rev().collect(),
            greedy: NO_WARP,
            next: NEVER,
            unit_free: [0; UNITS],
            idle_since: NEVER,
            idle_cause: Cause::Empty,
        }
    }

    /// Gives a slot back.
    pub(super) fn release(&mut self, slot: u16) {
        self.order.retain(|&other| other != slot);
        self.free_slots.push(slot);
        if self.greedy == slot {
            self.greedy = NO_WARP;
        }
    }
}

impl Sm {
    /// Lets one scheduler issue what it can in one cycle.
    pub(super) fn step(&mut self, index: usize, now: u64, out: &mut Outside<'_>) -> Result<(), Error> {
        let mut issued = 0;
        while issued < out.params.issue_width {
            match self.pick(index, now) {
                Pick::Warp(slot) if usize::from(self.unit[slot]) == UNIT_RETIRE => {
                    self.retire(slot, now, out)?
                }
                Pick::Warp(slot) => {
                    self.end_idle(index, now);
                    self.scheds[index].greedy = slot as u16;
                    self.scheds[index].next = now + 1;
                    self.issue(index, slot, now, out)?;
                    issued += 1;
                }
                Pick::Nothing { next, cause } => {
                    self.scheds[index].next = next;
                    self.begin_idle(index, now + u64::from(issued > 0), next, cause);
                    return Ok(());
                }
            }
        }
        self.scheds[index].next = now + 1;
        Ok(())
    }

    /// The warp that issued last if it can go on, or else the oldest that can.
    #[inline]
    fn pick(&self, index: usize, now: u64) -> Pick {
        let sched = &self.scheds[index];
        let earliest = |slot: usize| self.ready[slot].max(sched.unit_free[usize::from(self.unit[slot])]);
        if sched.greedy != NO_WARP && earliest(usize::from(sched.greedy)) <= now {
            return Pick::Warp(usize::from(sched.greedy));
        }
        let (mut next, mut first) = (NEVER, None);
        for &slot in &sched.order {
            let slot = usize::from(slot);
            let time = earliest(slot);
            if time <= now {
                return Pick::Warp(slot);
            }
            if time < next || first.is_none() {
                (next, first) = (time, Some(slot));
            }
        }
        Pick::Nothing { next, cause: first.map_or(Cause::Empty, |slot| self.why(index, slot)) }
    }

    /// Why a warp does not issue.
    fn why(&self, index: usize, slot: usize) -> Cause {
        let unit = usize::from(self.unit[slot]);
        if self.scheds[index].unit_free[unit] >= self.ready[slot] && self.ready[slot] != NEVER {
            return if unit == UNIT_MEMORY { Cause::MemoryQueue } else { Cause::Unit };
        }
        Cause::ALL[usize::from(self.cause[slot])]
    }

    #[inline]
    fn end_idle(&mut self, index: usize, now: u64) {
        let sched = &mut self.scheds[index];
        if sched.idle_since != NEVER {
            self.counts.stalls[sched.idle_cause as usize] += now - sched.idle_since;
            sched.idle_since = NEVER;
        }
    }

    #[inline]
    fn begin_idle(&mut self, index: usize, since: u64, next: u64, cause: Cause) {
        let sched = &mut self.scheds[index];
        if sched.idle_since == NEVER && next > since {
            (sched.idle_since, sched.idle_cause) = (since, cause);
        }
    }

    /// Says from when on memory instructions can be issued.
    pub(super) fn open_memory(&mut self, from: u64) {
        for sched in &mut self.scheds {
            if from < sched.unit_free[UNIT_MEMORY] {
                sched.next = sched.next.min(from);
            }
            sched.unit_free[UNIT_MEMORY] = from;
        }
    }
}
