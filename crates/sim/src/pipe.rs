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
    /// Ticks taken of each slot, a ring.
    taken: Vec<u32>,
    /// Of a full slot: how many slots further there may be room.
    skip: Vec<u32>,
    /// The first slot of the ring's present.
    base: u64,
    /// Ticks of work that were ever sent.
    pub(crate) busy: u64,
}

impl BandwidthServer {
    pub(crate) fn new() -> Self {
        Self { taken: vec![0; 64], skip: vec![0; 64], base: 0, busy: 0 }
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
            let index = self.index(slot);
            let take = left.min(SLOT - u64::from(self.taken[index]));
            self.taken[index] += take as u32;
            left -= take;
            if left == 0 {
                return (at + cost).max(slot * SLOT + u64::from(self.taken[index]));
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
            while slot - self.base >= self.taken.len() as u64 {
                self.grow();
            }
            let index = self.index(slot);
            if u64::from(self.taken[index]) < SLOT {
                break;
            }
            slot += u64::from(self.skip[index].max(1));
        }
        if slot != first {
            let index = self.index(first);
            self.skip[index] = (slot - first) as u32;
        }
        slot
    }

    #[inline]
    fn index(&self, slot: u64) -> usize {
        slot as usize & (self.taken.len() - 1)
    }

    /// Clears the slots before `base`.
    #[inline]
    fn forget(&mut self, base: u64) {
        if base <= self.base {
            return;
        }
        for slot in self.base..base.min(self.base + self.taken.len() as u64) {
            let index = self.index(slot);
            (self.taken[index], self.skip[index]) = (0, 0);
        }
        self.base = base;
    }

    /// Doubles the ring, so that it reaches further into the future.
    fn grow(&mut self) {
        let old = self.taken.len();
        let (mut taken, mut skip) = (vec![0; 2 * old], vec![0; 2 * old]);
        for slot in self.base..self.base + old as u64 {
            let (from, to) = (self.index(slot), slot as usize & (2 * old - 1));
            (taken[to], skip[to]) = (self.taken[from], self.skip[from]);
        }
        (self.taken, self.skip) = (taken, skip);
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
