//! Requests in flight from the SMs to L2, by arrival cycle.

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
    /// End of the window that the SMs run in.
    end: u64,
}

impl Requests {
    pub(crate) fn new(window: u64) -> Self {
        let cycles = (4 * window).next_power_of_two() as usize;
        Self { cycles: (0..cycles).map(|_| Vec::new()).collect(), end: 0 }
    }

    /// Opens a window that ends at cycle `end`.
    pub(crate) fn open(&mut self, end: u64) {
        self.end = end;
    }

    /// Returns the end of the window.
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Adds a request that arrives at `cycle`.
    #[inline]
    pub(crate) fn push(&mut self, cycle: u64, request: Request) {
        let index = cycle as usize & (self.cycles.len() - 1);
        self.cycles[index].push(request);
    }

    /// Swaps the requests of a cycle with an empty list.
    #[inline]
    pub(crate) fn take(&mut self, cycle: u64, list: &mut Vec<Request>) {
        let index = cycle as usize & (self.cycles.len() - 1);
        std::mem::swap(&mut self.cycles[index], list);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn sectors_are_counted() {
        assert!((0..16u8).all(|sectors| super::count(sectors) == u64::from(sectors.count_ones())));
    }
}
