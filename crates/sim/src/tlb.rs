//! Address translation: a TLB miss waits for a page-table walk.
//!
//! The TLB is direct-mapped and shared by the whole GPU.

use std::iter;

use crate::{
    bandwidth::TICKS,
    spec::{Gpu, Tlb as Spec},
};

#[derive(Debug)]
pub(crate) struct Tlb {
    /// Each TLB entry: its page number plus one (0 if it is empty), and the tick at which its walk ends.
    entries: Vec<(u64, u64)>,
    /// log2 of the lines in a page.
    page_shift: u32,
    /// Ticks of a page-table walk.
    walk: u64,
}

impl Tlb {
    pub(crate) fn new(gpu: &Gpu) -> Self {
        let Spec { entries, page_bytes, walk_cycles } = gpu.tlb;
        Self {
            entries: iter::repeat_n((0, 0), entries as usize).collect(),
            page_shift: (page_bytes / 128).trailing_zeros(),
            walk: u64::from(walk_cycles) * TICKS,
        }
    }

    /// Returns the ticks that an access waits for its translation. The access is to `line` and begins
    /// at tick `at`. A miss replaces an entry even if its walk has not ended.
    #[inline]
    pub(crate) fn wait(&mut self, at: u64, line: u64) -> u64 {
        let page = line >> self.page_shift;
        let index = page as usize % self.entries.len();
        let entry = &mut self.entries[index];
        if entry.0 != page + 1 {
            *entry = (page + 1, at + self.walk);
        }
        entry.1.saturating_sub(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_walked_once_and_again_after_eviction() {
        let mut gpu = Gpu::named("h200").unwrap();
        gpu.tlb = Spec { entries: 4, page_bytes: 1 << 21, walk_cycles: 500 };
        let mut tlb = Tlb::new(&gpu);
        let lines = (1 << 21) / 128;
        assert_eq!(tlb.wait(0, 5), 500 * TICKS);
        // One tick before the walk ends, the access still waits.
        assert_eq!(tlb.wait(500 * TICKS - 1, lines - 1), 1);
        assert_eq!(tlb.wait(500 * TICKS, lines - 1), 0);
        assert_eq!(tlb.wait(500 * TICKS, lines), 500 * TICKS);
        assert_eq!(tlb.wait(9000 * TICKS, 4 * lines), 500 * TICKS);
        assert_eq!(tlb.wait(9999 * TICKS, 0), 500 * TICKS);
    }
}
