//! A server of fixed bandwidth whose requests may arrive out of time order.
//!
//! A single "free from" time would let a request issued early with a late time delay all others.
//! Instead, the server tracks the occupancy of short time slots and gives a request the first free
//! capacity at or after its time. It never exceeds its bandwidth, wastes none, and needs no events.

/// Ticks per core cycle: the memory system's time resolution.
pub(crate) const TICKS: u64 = 256;
/// Ticks per slot: 16 cycles.
const SLOT: u64 = 16 * TICKS;

/// Occupancy of one server over time.
#[derive(Debug)]
pub(crate) struct BandwidthServer {
    /// Ring of slots.
    slots: Vec<Slot>,
    /// Number of the oldest slot in the ring.
    base: u64,
    /// Total ticks of work.
    pub(crate) busy: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    /// Occupied ticks.
    occupied: u32,
    /// If full: distance in slots to the next one that may have capacity.
    skip: u32,
}

impl BandwidthServer {
    pub(crate) fn new() -> Self {
        Self { slots: vec![Slot::default(); 64], base: 0, busy: 0 }
    }

    /// Schedules `cost` ticks of work that arrives at tick `at`; returns its completion tick.
    ///
    /// Slots before `floor` are discarded: no later call may have an earlier time.
    #[inline]
    pub(crate) fn send(&mut self, floor: u64, at: u64, cost: u64) -> u64 {
        self.discard_before(floor / SLOT);
        self.busy += cost;
        let mut slot = self.first_free((at / SLOT).max(self.base));
        let mut remaining = cost;
        loop {
            let current = self.slot_mut(slot);
            let part = remaining.min(SLOT - u64::from(current.occupied));
            current.occupied += part as u32;
            remaining -= part;
            if remaining == 0 {
                return (at + cost).max(slot * SLOT + u64::from(current.occupied));
            }
            slot = self.first_free(slot);
        }
    }

    /// Returns the first slot from `slot` on with free capacity.
    #[inline]
    fn first_free(&mut self, slot: u64) -> u64 {
        let first = slot;
        let mut slot = slot;
        loop {
            while slot - self.base >= self.slots.len() as u64 {
                self.grow();
            }
            let current = self.slot_mut(slot);
            if u64::from(current.occupied) < SLOT {
                break;
            }
            slot += u64::from(current.skip.max(1));
        }
        if slot != first {
            self.slot_mut(first).skip = (slot - first) as u32;
        }
        slot
    }

    #[inline]
    fn slot_mut(&mut self, slot: u64) -> &mut Slot {
        let index = slot as usize & (self.slots.len() - 1);
        &mut self.slots[index]
    }

    /// Clears the slots before `base`.
    #[inline]
    fn discard_before(&mut self, base: u64) {
        if base <= self.base {
            return;
        }
        for slot in self.base..base.min(self.base + self.slots.len() as u64) {
            *self.slot_mut(slot) = Slot::default();
        }
        self.base = base;
    }

    /// Doubles the ring to reach further into the future.
    fn grow(&mut self) {
        let old = self.slots.len();
        let mut slots = vec![Slot::default(); 2 * old];
        for slot in self.base..self.base + old as u64 {
            slots[slot as usize & (2 * old - 1)] = *self.slot_mut(slot);
        }
        self.slots = slots;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_idle_server_adds_no_delay() {
        let mut server = BandwidthServer::new();
        assert_eq!(server.send(0, 1000, 300), 1300);
        assert_eq!(server.send(0, 10 * SLOT + 5, 300), 10 * SLOT + 305);
    }

    #[test]
    fn an_earlier_request_is_not_delayed_by_a_later_one() {
        let mut server = BandwidthServer::new();
        assert_eq!(server.send(0, 100 * SLOT, 10), 100 * SLOT + 10);
        assert_eq!(server.send(0, 0, 10), 10);
    }

    #[test]
    fn a_long_transfer_fills_consecutive_slots() {
        let mut server = BandwidthServer::new();
        assert_eq!(server.send(0, 0, 500 * SLOT), 500 * SLOT);
        assert_eq!(server.send(0, 0, SLOT), 501 * SLOT);
    }

    proptest! {
        /// Work completed by any time never exceeds that time.
        #[test]
        fn the_bandwidth_is_never_exceeded(
            requests in proptest::collection::vec((0u64..200 * SLOT, 1u64..3 * SLOT), 1..200),
        ) {
            let mut server = BandwidthServer::new();
            let mut done = Vec::new();
            for &(at, cost) in &requests {
                let end = server.send(0, at, cost);
                prop_assert!(end >= at + cost);
                done.push((end, cost));
            }
            done.sort_unstable();
            let mut work = 0;
            for (end, cost) in done {
                work += cost;
                prop_assert!(work <= end.next_multiple_of(SLOT));
            }
            prop_assert_eq!(server.busy, work);
        }
    }
}
