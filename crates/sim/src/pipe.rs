//! A server of fixed bandwidth whose requests arrive out of order.
//!
//! A plain "free from" time would let a request that arrives late in time but early in the program push back
//! everything after it. A pipe keeps instead how much of each short slot of time is taken, and gives a request
//! the first room at or after its own time. It never passes its bandwidth, wastes none, and needs no event.

/// Ticks of a cycle: times inside the memory system are finer than a cycle of the core.
pub(crate) const TICKS: u64 = 256;
/// Ticks of a slot: 16 cycles.
const SLOT: u64 = 16 * TICKS;

/// Work of one server over time.
#[derive(Debug)]
pub(crate) struct BandwidthServer {
    /// A ring.
    slots: Vec<Slot>,
    /// The first slot of the ring's present.
    base: u64,
    /// Ticks of work that were ever sent.
    pub(crate) busy: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    /// Ticks taken of it.
    taken: u32,
    /// Once it is full: how many slots further there may be room.
    skip: u32,
}

impl BandwidthServer {
    pub(crate) fn new() -> Self {
        Self { slots: vec![Slot::default(); 64], base: 0, busy: 0 }
    }

    /// Sends work of `cost` ticks that arrives at tick `at`; gives the tick at which it is through.
    ///
    /// No later call may have a time before `floor`: what lies before it is forgotten.
    #[inline]
    pub(crate) fn send(&mut self, floor: u64, at: u64, cost: u64) -> u64 {
        self.forget(floor / SLOT);
        self.busy += cost;
        let mut slot = self.room((at / SLOT).max(self.base));
        let mut left = cost;
        loop {
            let here = self.at(slot);
            let take = left.min(SLOT - u64::from(here.taken));
            here.taken += take as u32;
            left -= take;
            if left == 0 {
                return (at + cost).max(slot * SLOT + u64::from(here.taken));
            }
            slot = self.room(slot);
        }
    }

    /// The first slot from `slot` on that has room.
    #[inline]
    fn room(&mut self, slot: u64) -> u64 {
        let first = slot;
        let mut slot = slot;
        loop {
            while slot - self.base >= self.slots.len() as u64 {
                self.grow();
            }
            let here = self.at(slot);
            if u64::from(here.taken) < SLOT {
                break;
            }
            slot += u64::from(here.skip.max(1));
        }
        if slot != first {
            self.at(first).skip = (slot - first) as u32;
        }
        slot
    }

    #[inline]
    fn at(&mut self, slot: u64) -> &mut Slot {
        let index = slot as usize & (self.slots.len() - 1);
        &mut self.slots[index]
    }

    /// Clears the slots before `base`.
    #[inline]
    fn forget(&mut self, base: u64) {
        if base <= self.base {
            return;
        }
        for slot in self.base..base.min(self.base + self.slots.len() as u64) {
            *self.at(slot) = Slot::default();
        }
        self.base = base;
    }

    /// Doubles the ring, so that it reaches further into the future.
    fn grow(&mut self) {
        let old = self.slots.len();
        let mut slots = vec![Slot::default(); 2 * old];
        for slot in self.base..self.base + old as u64 {
            slots[slot as usize & (2 * old - 1)] = *self.at(slot);
        }
        self.slots = slots;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn alone_a_request_takes_its_own_time() {
        let mut pipe = BandwidthServer::new();
        assert_eq!(pipe.send(0, 1000, 300), 1300);
        assert_eq!(pipe.send(0, 10 * SLOT + 5, 300), 10 * SLOT + 305);
    }

    #[test]
    fn an_early_request_is_not_held_up_by_a_late_one() {
        let mut pipe = BandwidthServer::new();
        assert_eq!(pipe.send(0, 100 * SLOT, 10), 100 * SLOT + 10);
        assert_eq!(pipe.send(0, 0, 10), 10);
    }

    #[test]
    fn a_long_transfer_fills_slot_after_slot() {
        let mut pipe = BandwidthServer::new();
        assert_eq!(pipe.send(0, 0, 500 * SLOT), 500 * SLOT);
        assert_eq!(pipe.send(0, 0, SLOT), 501 * SLOT);
    }

    proptest! {
        /// Whatever arrives, no stretch of time does more than a stretch of work.
        #[test]
        fn the_bandwidth_is_never_passed(
            requests in proptest::collection::vec((0u64..200 * SLOT, 1u64..3 * SLOT), 1..200),
        ) {
            let mut pipe = BandwidthServer::new();
            let mut done = Vec::new();
            for &(at, cost) in &requests {
                let end = pipe.send(0, at, cost);
                prop_assert!(end >= at + cost);
                done.push((end, cost));
            }
            done.sort_unstable();
            let mut work = 0;
            for (end, cost) in done {
                work += cost;
                prop_assert!(work <= end.next_multiple_of(SLOT));
            }
            prop_assert_eq!(pipe.busy, work);
        }
    }
}
