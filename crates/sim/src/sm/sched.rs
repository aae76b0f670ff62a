//! A warp scheduler: greedy, then oldest.

use super::{NEVER, Outside, Sm};
use crate::{
    Error,
    params::{Params, UNIT_EXIT, UNIT_MEMORY, UNITS},
    sorted::Sorted,
    stats::StallReason,
};

/// The most warps of a scheduler.
const PLACES: usize = 64;

#[derive(Debug)]
pub(super) struct WarpScheduler {
    /// Its warps by age, the oldest first: the slot of each, when it can issue next, on which unit, and what it waits for. They
    /// lie here, and not with the warps, because every look at the scheduler reads many of them.
    warps: usize,
    slots: [u16; PLACES],
    ready: [u64; PLACES],
    units: [u8; PLACES],
    causes: [StallReason; PLACES],
    /// By their places in the order: those that can issue soon, and those that want memory next. With them a
    /// look at the warps skips the ones that wait, which in a stream are nearly all.
    awake: u64,
    wants_memory: u64,
    /// Warps whose data comes at a known time: the time and the slot.
    later: Sorted<(u64, u16)>,
    pub(super) free_slots: Vec<u16>,
    /// The place of the warp that issued last.
    greedy: u8,
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

const NO_WARP: u8 = u8::MAX;

/// What a look at the warps finds.
enum Pick {
    /// The place of one that can issue.
    Warp(u8),
    Nothing {
        next: u64,
        cause: StallReason,
    },
}

impl WarpScheduler {
    pub(super) fn new(index: u32, params: &Params) -> Self {
        let slots = (index..params.warps).step_by(params.schedulers as usize);
        Self {
            warps: 0,
            slots: [0; PLACES],
            ready: [NEVER; PLACES],
            units: [0; PLACES],
            causes: [StallReason::Empty; PLACES],
            awake: 0,
            wants_memory: 0,
            later: Sorted::new(),
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
        places[usize::from(slot)] = self.warps as u8;
        self.slots[self.warps] = slot;
        self.warps += 1;
        Some(slot)
    }

    /// Gives a slot back; the younger warps move up.
    pub(super) fn release(&mut self, slot: u16, places: &mut [u8]) {
        let place = usize::from(places[usize::from(slot)]);
        let younger = place + 1..self.warps;
        self.slots[younger.clone()].iter().for_each(|&other| places[usize::from(other)] -= 1);
        self.slots.copy_within(younger.clone(), place);
        self.ready.copy_within(younger.clone(), place);
        self.units.copy_within(younger.clone(), place);
        self.causes.copy_within(younger, place);
        self.warps -= 1;
        let below = (1u64 << place) - 1;
        self.awake = self.awake & below | self.awake >> 1 & !below;
        self.wants_memory = self.wants_memory & below | self.wants_memory >> 1 & !below;
        self.free_slots.push(slot);
        self.greedy = match self.greedy {
            NO_WARP => NO_WARP,
            greedy if usize::from(greedy) == place => NO_WARP,
            greedy => greedy - u8::from(usize::from(greedy) > place),
        };
    }

    /// Has a warp looked at from a known cycle on.
    #[inline]
    pub(super) fn sleep(&mut self, slot: u16, until: u64) {
        self.later.push((until, slot));
    }

    /// Looks again at the warps whose time has come.
    #[inline]
    fn wake_sleepers(&mut self, now: u64, places: &[u8]) {
        while let Some((until, slot)) = self.later.first()
            && until <= now
        {
            self.later.pop();
            self.awake |= 1 << places[usize::from(slot)];
        }
    }

    /// Notes when the warp at a place can issue, on which unit, what it waits for, and whether a look at it is worth while.
    #[inline]
    pub(super) fn note(&mut self, place: u8, ready: u64, unit: usize, cause: StallReason, awake: bool) {
        let (bit, place) = (1u64 << place, usize::from(place) % PLACES);
        (self.ready[place], self.units[place], self.causes[place]) = (ready, unit as u8, cause);
        self.awake = if awake { self.awake | bit } else { self.awake & !bit };
        let wants_memory = self.wants_memory & !bit;
        self.wants_memory = if unit == UNIT_MEMORY { wants_memory | bit } else { wants_memory };
    }

    /// When the warp at a place can issue, as far as its registers go.
    #[inline]
    pub(super) fn ready(&self, place: u8) -> u64 {
        self.ready[usize::from(place) % PLACES]
    }

    /// When its unit is free too.
    #[inline]
    fn earliest(&self, place: usize) -> u64 {
        let place = place % PLACES;
        self.ready[place].max(self.unit_free[usize::from(self.units[place]) % UNITS])
    }

    /// The warp that issued last if it can go on, or else the oldest that can.
    #[inline]
    fn pick(&self, now: u64, places: &[u8]) -> Pick {
        if self.greedy != NO_WARP && self.earliest(usize::from(self.greedy)) <= now {
            return Pick::Warp(self.greedy);
        }
        let memory_free = self.unit_free[UNIT_MEMORY];
        let blocked = if memory_free > now { self.awake & self.wants_memory } else { 0 };
        let sleeper =
            self.later.first().map(|(time, slot)| (time, Some(usize::from(places[usize::from(slot)]))));
        let (mut next, mut first) = sleeper.unwrap_or((NEVER, None));
        let mut waiting = self.awake & !blocked;
        while waiting != 0 {
            let place = waiting.trailing_zeros() as usize;
            waiting &= waiting - 1;
            let time = self.earliest(place);
            if time <= now {
                return Pick::Warp(place as u8);
            }
            if time < next {
                (next, first) = (time, Some(place));
            }
        }
        if blocked != 0 && (memory_free < next || first.is_none()) {
            return Pick::Nothing { next: memory_free.min(next), cause: StallReason::MemoryQueue };
        }
        // With no time to wait for, the oldest warp says why.
        let place = first.or((self.warps > 0).then_some(0));
        Pick::Nothing { next, cause: place.map_or(StallReason::Empty, |place| self.why(place % PLACES)) }
    }

    /// Why the warp at a place does not issue.
    #[inline]
    fn why(&self, place: usize) -> StallReason {
        let free = self.unit_free[usize::from(self.units[place]) % UNITS];
        if free >= self.ready[place] { StallReason::Unit } else { self.causes[place] }
    }
}

impl Sm {
    /// Lets one scheduler issue what it can in one cycle.
    pub(super) fn step(&mut self, index: usize, now: u64, out: &mut Outside<'_>) -> Result<(), Error> {
        self.scheds[index].wake_sleepers(now, &self.places);
        let mut issued = 0;
        while issued < out.params.issue_width {
            let sched = &mut self.scheds[index];
            match sched.pick(now, &self.places) {
                Pick::Warp(place) => {
                    let slot = usize::from(sched.slots[usize::from(place) % PLACES]);
                    if usize::from(sched.units[usize::from(place) % PLACES]) == UNIT_EXIT {
                        self.retire(slot, now, out)?;
                        continue;
                    }
                    let again = sched.greedy == place;
                    (sched.greedy, sched.next) = (place, now + 1);
                    self.end_idle(index, now);
                    self.issue(index, slot, again, now, out)?;
                    issued += 1;
                }
                Pick::Nothing { next, cause } => {
                    sched.next = next;
                    self.begin_idle(index, now + u64::from(issued > 0), next, cause);
                    return Ok(());
                }
            }
        }
        self.scheds[index].next = now + 1;
        Ok(())
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
