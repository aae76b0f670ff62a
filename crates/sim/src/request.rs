//! Requests in flight from the SMs to L2, by arrival cycle.

use std::ops::Range;

use crate::l2::Operation;

/// Kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A load of sectors; has a reply.
    Read,
    /// A store of sectors; has no reply.
    Write,
    /// An atomic that returns a value.
    Atomic,
    /// An atomic that does not.
    Reduce,
    /// A load whose sectors an earlier request of the same SM fetches. Occupies no resources.
    Merge,
}

/// Returns the number of sectors in a mask.
#[inline]
pub(crate) fn count(sectors: u8) -> u64 {
    // Lookup table in a word: not every host has a popcount instruction.
    0x4332_3221_3221_2110 >> (4 * (sectors & 0xf)) & 0xf
}

/// No L1 line is allocated for the request.
pub(crate) const NO_LINE: u32 = u32::MAX;

/// A request for sectors of one line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) line: u64,
    pub(crate) load_id: u32,
    pub(crate) l1_line: u32,
    pub(crate) sm: u16,
    pub(crate) sectors: u8,
    /// Fully covered sectors of a store, or passes of an atomic.
    pub(crate) full: u8,
    pub(crate) kind: Kind,
}

impl Request {
    /// Returns what L2 does; a merged request never reaches it.
    #[inline]
    pub(crate) fn operation(&self) -> Operation {
        match self.kind {
            Kind::Read | Kind::Merge => Operation::Read,
            Kind::Write => Operation::Write { full: self.full },
            Kind::Atomic | Kind::Reduce => Operation::Atomic { passes: self.full },
        }
    }

    #[inline]
    pub(crate) fn new(
        sm: u16,
        kind: Kind,
        line: u64,
        sectors: u8,
        full: u8,
        load_id: u32,
        l1_line: u32,
    ) -> Self {
        Self { line, load_id, l1_line, sm, sectors, full, kind }
    }
}

/// Requests that arrive in the next two windows.
#[derive(Debug)]
pub(crate) struct Requests {
    /// Ring, indexed by arrival cycle.
    cycles: Vec<Vec<Request>>,
}

impl Requests {
    pub(crate) fn new(window: u64) -> Self {
        let cycles = (4 * window).next_power_of_two() as usize;
        Self { cycles: (0..cycles).map(|_| Vec::new()).collect() }
    }

    /// Adds a request that arrives at `cycle`.
    #[inline]
    pub(crate) fn push(&mut self, cycle: u64, request: Request) {
        let index = self.index(cycle);
        self.cycles[index].push(request);
    }

    /// Returns the requests of some cycles in the order of their arrival.
    pub(crate) fn arriving(&self, cycles: Range<u64>) -> impl Iterator<Item = (u64, &Request)> {
        cycles.flat_map(|cycle| self.cycles[self.index(cycle)].iter().map(move |request| (cycle, request)))
    }

    /// Forgets the requests of some cycles.
    pub(crate) fn clear(&mut self, cycles: Range<u64>) {
        for cycle in cycles {
            let index = self.index(cycle);
            self.cycles[index].clear();
        }
    }

    #[inline]
    fn index(&self, cycle: u64) -> usize {
        cycle as usize & (self.cycles.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn sectors_are_counted() {
        assert!((0..16u8).all(|sectors| super::count(sectors) == u64::from(sectors.count_ones())));
    }
}
