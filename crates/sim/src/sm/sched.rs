//! A warp scheduler: greedy, then oldest (GTO).

use super::{NEVER, Sm, SmContext};
use crate::{
    Error,
    params::{Params, UNIT_EXIT, UNIT_MEMORY, UNITS},
    sorted::SortedQueue,
    stats::StallReason,
};

/// Largest number of warps per scheduler.
const MAX_WARPS: usize = 64;

#[derive(Debug)]
pub(super) struct WarpScheduler {
    /// Warps in age order, oldest first: slot, next issue cycle, unit and stall reason. Kept apart
    /// from the warps because every scheduling decision reads many of them.
    warps: usize,
    slots: [u16; MAX_WARPS],
    ready: [u64; MAX_WARPS],
    units: [u8; MAX_WARPS],
    causes: [StallReason; MAX_WARPS],
    /// Bit masks by rank: warps that can issue soon, and warps whose next instruction accesses
    /// memory. They let the scheduler skip stalled warps, nearly all of them in a stream.
    awake: u64,
    next_is_memory: u64,
    /// Warps with a known wake-up cycle: cycle and slot.
    sleeping: SortedQueue<(u64, u16)>,
    pub(super) free_slots: Vec<u16>,
    /// Rank of the warp that issued last.
    greedy: u8,
    /// Next cycle at which it may issue.
    pub(super) next: u64,
    /// Cycle at which each unit accepts the next instruction.
    pub(super) unit_free: [u64; UNITS],
    /// Cycle at which its next memory instruction reaches the load-store unit, and the earliest
    /// cycle to issue one that waits in the queue.
    memory_free: u64,
    memory_from: u64,
    /// Start of the current stall, and its reason.
    idle_since: u64,
    idle_cause: StallReason,
}

const NO_WARP: u8 = u8::MAX;

/// Result of a scheduling decision.
enum Pick {
    /// Rank of a warp that can issue.
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
            slots: [0; MAX_WARPS],
            ready: [NEVER; MAX_WARPS],
            units: [0; MAX_WARPS],
            causes: [StallReason::Empty; MAX_WARPS],
            awake: 0,
            next_is_memory: 0,
            sleeping: SortedQueue::new(),
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

    /// Takes a free slot for a new, youngest warp.
    pub(super) fn take_slot(&mut self, ranks: &mut [u8]) -> Option<u16> {
        let slot = self.free_slots.pop()?;
        ranks[usize::from(slot)] = self.warps as u8;
        self.slots[self.warps] = slot;
        self.warps += 1;
        Some(slot)
    }

    /// Frees a slot; the younger warps move up in rank.
    pub(super) fn release(&mut self, slot: u16, ranks: &mut [u8]) {
        let rank = usize::from(ranks[usize::from(slot)]);
        let younger = rank + 1..self.warps;
        self.slots[younger.clone()].iter().for_each(|&other| ranks[usize::from(other)] -= 1);
        self.slots.copy_within(younger.clone(), rank);
        self.ready.copy_within(younger.clone(), rank);
        self.units.copy_within(younger.clone(), rank);
        self.causes.copy_within(younger, rank);
        self.warps -= 1;
        let below = (1u64 << rank) - 1;
        self.awake = self.awake & below | self.awake >> 1 & !below;
        self.next_is_memory = self.next_is_memory & below | self.next_is_memory >> 1 & !below;
        self.free_slots.push(slot);
        self.greedy = match self.greedy {
            NO_WARP => NO_WARP,
            greedy if usize::from(greedy) == rank => NO_WARP,
            greedy => greedy - u8::from(usize::from(greedy) > rank),
        };
    }

    /// Puts a warp to sleep until a known cycle.
    #[inline]
    pub(super) fn sleep(&mut self, slot: u16, until: u64) {
        self.sleeping.push((until, slot));
    }

    /// Wakes the warps whose cycle has passed.
    #[inline]
    fn wake_sleepers(&mut self, now: u64, ranks: &[u8]) {
        while let Some((until, slot)) = self.sleeping.first()
            && until <= now
        {
            self.sleeping.pop();
            self.awake |= 1 << ranks[usize::from(slot)];
        }
    }

    /// Sets a warp's issue cycle, unit and stall reason, and whether the scheduler considers it.
    #[inline]
    pub(super) fn set_warp(&mut self, rank: u8, ready: u64, unit: usize, cause: StallReason, awake: bool) {
        let (bit, rank) = (1u64 << rank, usize::from(rank) % MAX_WARPS);
        (self.ready[rank], self.units[rank], self.causes[rank]) = (ready, unit as u8, cause);
        self.awake = if awake { self.awake | bit } else { self.awake & !bit };
        let next_is_memory = self.next_is_memory & !bit;
        self.next_is_memory = if unit == UNIT_MEMORY { next_is_memory | bit } else { next_is_memory };
    }

    /// Returns the cycle at which a warp's operands are ready.
    #[inline]
    pub(super) fn ready(&self, rank: u8) -> u64 {
        self.ready[usize::from(rank) % MAX_WARPS]
    }

    /// Returns the cycle at which a warp's operands and unit are ready.
    #[inline]
    fn earliest(&self, rank: usize) -> u64 {
        let rank = rank % MAX_WARPS;
        self.ready[rank].max(self.unit_free[usize::from(self.units[rank]) % UNITS])
    }

    /// Picks the warp that issued last if it can continue, else the oldest that can issue.
    #[inline]
    fn pick(&self, now: u64, ranks: &[u8]) -> Pick {
        if self.greedy != NO_WARP && self.earliest(usize::from(self.greedy)) <= now {
            return Pick::Warp(self.greedy);
        }
        let memory_free = self.unit_free[UNIT_MEMORY];
        let blocked = if memory_free > now { self.awake & self.next_is_memory } else { 0 };
        let sleeper =
            self.sleeping.first().map(|(time, slot)| (time, Some(usize::from(ranks[usize::from(slot)]))));
        let (mut next, mut first) = sleeper.unwrap_or((NEVER, None));
        let mut waiting = self.awake & !blocked;
        while waiting != 0 {
            let rank = waiting.trailing_zeros() as usize;
            waiting &= waiting - 1;
            let time = self.earliest(rank);
            if time <= now {
                return Pick::Warp(rank as u8);
            }
            if time < next {
                (next, first) = (time, Some(rank));
            }
        }
        if blocked != 0 && (memory_free < next || first.is_none()) {
            return Pick::Nothing { next: memory_free.min(next), cause: StallReason::MemoryQueue };
        }
        // Without a known wake-up, the oldest warp gives the reason.
        let rank = first.or((self.warps > 0).then_some(0));
        Pick::Nothing {
            next,
            cause: rank.map_or(StallReason::Empty, |rank| self.stall_reason(rank % MAX_WARPS)),
        }
    }

    /// Returns why a warp does not issue.
    #[inline]
    fn stall_reason(&self, rank: usize) -> StallReason {
        let free = self.unit_free[usize::from(self.units[rank]) % UNITS];
        if free >= self.ready[rank] { StallReason::Unit } else { self.causes[rank] }
    }
}

impl Sm {
    /// Issues up to `issue_width` instructions of one scheduler in one cycle.
    pub(super) fn step(&mut self, index: usize, now: u64, out: &mut SmContext<'_, '_>) -> Result<(), Error> {
        self.scheds[index].wake_sleepers(now, &self.ranks);
        let mut issued = 0;
        while issued < out.params.issue_width {
            let sched = &mut self.scheds[index];
            match sched.pick(now, &self.ranks) {
                Pick::Warp(rank) => {
                    let slot = usize::from(sched.slots[usize::from(rank) % MAX_WARPS]);
                    if usize::from(sched.units[usize::from(rank) % MAX_WARPS]) == UNIT_EXIT {
                        self.retire(slot, now, out)?;
                        continue;
                    }
                    let same_warp = sched.greedy == rank;
                    (sched.greedy, sched.next) = (rank, now + 1);
                    self.end_idle(index, now);
                    self.issue(index, slot, same_warp, now, out)?;
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

    /// Returns the cycle at which a memory instruction issued now reaches the load-store unit, in
    /// order.
    #[inline]
    pub(super) fn memory_issue_time(&self, index: usize, now: u64) -> u64 {
        self.scheds[index].memory_free.max(now)
    }

    /// Keeps a scheduler's next memory instruction from the load-store unit until cycle `until`.
    /// When `queue` cycles of instructions wait, none is issued.
    #[inline]
    pub(super) fn hold_memory_until(&mut self, index: usize, until: u64, queue: u64) {
        let sched = &mut self.scheds[index];
        (sched.memory_free, sched.memory_from) = (until, until.saturating_sub(queue));
        sched.unit_free[UNIT_MEMORY] = sched.unit_free[UNIT_MEMORY].max(sched.memory_from);
    }

    /// Sets the cycle from which memory instructions can issue.
    pub(super) fn allow_memory_from(&mut self, from: u64) {
        for sched in &mut self.scheds {
            let from = from.max(sched.memory_from);
            if from < sched.unit_free[UNIT_MEMORY] {
                sched.next = sched.next.min(from);
            }
            sched.unit_free[UNIT_MEMORY] = from;
        }
    }
}
