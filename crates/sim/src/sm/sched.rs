//! A warp scheduler: greedy, then oldest.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{NEVER, Outside, Sm};
use crate::{
    Error,
    params::{Params, UNIT_EXIT, UNIT_MEMORY, UNITS},
    stats::StallReason,
};

#[derive(Debug)]
pub(super) struct WarpScheduler {
    /// Its warps, the oldest first.
    order: Vec<u16>,
    /// By their places in the order: those that can issue soon, and those that want memory next. With them a
    /// look at the warps skips the ones that wait, which in a stream are nearly all.
    awake: u64,
    wants_memory: u64,
    /// Warps whose data comes at a known time: the time and the slot.
    later: BinaryHeap<Reverse<(u64, u16)>>,
    pub(super) free_slots: Vec<u16>,
    /// The warp that issued last.
    greedy: u16,
    /// The next cycle at which it may find something to issue.
    pub(super) next: u64,
    /// When each of its units takes the next instruction.
    pub(super) unit_free: [u64; UNITS],
    /// When its next memory instruction reaches the memory unit, one after the other, and from when on it may issue
    /// one that waits for that.
    memory_free: u64,
    memory_from: u64,
    /// Since when it has nothing to issue, and why.
    idle_since: u64,
    idle_cause: StallReason,
}

const NO_WARP: u16 = u16::MAX;

/// What a look at the warps finds.
enum Pick {
    Warp(usize),
    Nothing { next: u64, cause: StallReason },
}

impl WarpScheduler {
    pub(super) fn new(index: u32, params: &Params) -> Self {
        let slots = (index..params.warps).step_by(params.schedulers as usize);
        Self {
            order: Vec::new(),
            awake: 0,
            wants_memory: 0,
            later: BinaryHeap::new(),
            free_slots: slots.map(|slot| slot as u16).rev().collect(),
            greedy: NO_WARP,
            next: NEVER,
            unit_free: [0; UNITS],
            memory_free: 0,
            memory_from: 0,
            idle_since: NEVER,
            idle_cause: StallReason::Empty,
        }
    }

    /// Takes a free slot for the youngest warp.
    pub(super) fn take(&mut self, places: &mut [u8]) -> Option<u16> {
        let slot = self.free_slots.pop()?;
        places[usize::from(slot)] = self.order.len() as u8;
        self.order.push(slot);
        Some(slot)
    }

    /// Gives a slot back; the younger warps move up.
    pub(super) fn release(&mut self, slot: u16, places: &mut [u8]) {
        let place = usize::from(places[usize::from(slot)]);
        self.order.remove(place);
        self.order[place..].iter().for_each(|&other| places[usize::from(other)] -= 1);
        let below = (1u64 << place) - 1;
        self.awake = self.awake & below | self.awake >> 1 & !below;
        self.wants_memory = self.wants_memory & below | self.wants_memory >> 1 & !below;
        self.free_slots.push(slot);
        if self.greedy == slot {
            self.greedy = NO_WARP;
        }
    }

    /// Has a warp looked at from a known cycle on.
    #[inline]
    pub(super) fn sleep(&mut self, slot: u16, until: u64) {
        self.later.push(Reverse((until, slot)));
    }

    /// Looks again at the warps whose time has come.
    #[inline]
    fn wake_sleepers(&mut self, now: u64, places: &[u8]) {
        while let Some(&Reverse((until, slot))) = self.later.peek()
            && until <= now
        {
            self.later.pop();
            self.awake |= 1 << places[usize::from(slot)];
        }
    }

    /// Notes what the warp at a place waits for.
    #[inline]
    pub(super) fn note(&mut self, place: u8, awake: bool, wants_memory: bool) {
        let bit = 1u64 << place;
        self.awake = if awake { self.awake | bit } else { self.awake & !bit };
        self.wants_memory = if wants_memory { self.wants_memory | bit } else { self.wants_memory & !bit };
    }
}

impl Sm {
    /// Lets one scheduler issue what it can in one cycle.
    pub(super) fn step(&mut self, index: usize, now: u64, out: &mut Outside<'_>) -> Result<(), Error> {
        self.scheds[index].wake_sleepers(now, &self.places);
        let mut issued = 0;
        while issued < out.params.issue_width {
            match self.pick(index, now) {
                Pick::Warp(slot) if usize::from(self.unit[slot]) == UNIT_EXIT => {
                    self.retire(slot, now, out)?
                }
                Pick::Warp(slot) => {
                    self.end_idle(index, now);
                    let again = usize::from(self.scheds[index].greedy) == slot;
                    self.scheds[index].greedy = slot as u16;
                    self.scheds[index].next = now + 1;
                    self.issue(index, slot, again, now, out)?;
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
        let memory_free = sched.unit_free[UNIT_MEMORY];
        let blocked = if memory_free > now { sched.awake & sched.wants_memory } else { 0 };
        let sleeper = sched.later.peek().map(|sleeper| sleeper.0);
        let (mut next, mut first) =
            sleeper.map_or((NEVER, None), |(time, slot)| (time, Some(usize::from(slot))));
        let mut waiting = sched.awake & !blocked;
        while waiting != 0 {
            let slot = usize::from(sched.order[waiting.trailing_zeros() as usize]);
            waiting &= waiting - 1;
            let time = earliest(slot);
            if time <= now {
                return Pick::Warp(slot);
            }
            if time < next {
                (next, first) = (time, Some(slot));
            }
        }
        if blocked != 0 && (memory_free < next || first.is_none()) {
            return Pick::Nothing { next: memory_free.min(next), cause: StallReason::MemoryQueue };
        }
        // With no time to wait for, the oldest warp says why.
        let slot = first.or_else(|| sched.order.first().map(|&slot| usize::from(slot)));
        Pick::Nothing { next, cause: slot.map_or(StallReason::Empty, |slot| self.why(index, slot)) }
    }

    /// Why a warp does not issue.
    fn why(&self, index: usize, slot: usize) -> StallReason {
        let unit = usize::from(self.unit[slot]);
        if self.scheds[index].unit_free[unit] >= self.ready[slot] {
            return StallReason::Unit;
        }
        StallReason::ALL[usize::from(self.cause[slot])]
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
    fn begin_idle(&mut self, index: usize, since: u64, next: u64, cause: StallReason) {
        let sched = &mut self.scheds[index];
        if sched.idle_since == NEVER && next > since {
            (sched.idle_since, sched.idle_cause) = (since, cause);
        }
    }

    /// The cycle at which a memory instruction that a scheduler issues now reaches the memory unit, in order.
    #[inline]
    pub(super) fn reach_memory(&self, index: usize, now: u64) -> u64 {
        self.scheds[index].memory_free.max(now)
    }

    /// Keeps a scheduler's next memory instruction from the memory unit before cycle `until`; with a full queue it is
    /// not even issued.
    #[inline]
    pub(super) fn hold_memory(&mut self, index: usize, until: u64, queue: u64) {
        let sched = &mut self.scheds[index];
        (sched.memory_free, sched.memory_from) = (until, until.saturating_sub(queue));
        sched.unit_free[UNIT_MEMORY] = sched.unit_free[UNIT_MEMORY].max(sched.memory_from);
    }

    /// Says from when on memory instructions can be issued.
    pub(super) fn open_memory(&mut self, from: u64) {
        for sched in &mut self.scheds {
            let from = from.max(sched.memory_from);
            if from < sched.unit_free[UNIT_MEMORY] {
                sched.next = sched.next.min(from);
            }
            sched.unit_free[UNIT_MEMORY] = from;
        }
    }
}
