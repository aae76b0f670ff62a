//! Where the memory of a trace or a generated program lies: what a file of targets by address goes by.

use std::{collections::BTreeMap, path::Path};

use buddy_core::ENTRY_BYTES;
use buddy_trace::{Addresses, At, Code, Item, Kernel, open_kernel};

use crate::{
    Error, Stage,
    stage::{Memory, Work},
};

/// Bytes between two accesses beyond which they are taken for two ranges, where nothing is stated.
const GAP: u64 = 4096;
const ENTRY: u64 = ENTRY_BYTES as u64;

/// A range of addresses, of whole entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first address.
    pub base: u64,
    /// How many bytes.
    pub bytes: u64,
    /// Whether the program says that it lies there: it copies to it, or allocates it. Else kernels were seen to access it.
    pub stated: bool,
    /// Whether a kernel accesses it.
    pub accessed: bool,
}

impl Stage {
    /// The ranges of a trace or a generated program by address: what it copies to or allocates, and what else its kernels
    /// access. A trace is read whole.
    ///
    /// # Errors
    /// A program whose allocations have names, or a trace that is none.
    pub fn ranges(&self) -> Result<Vec<Range>, Error> {
        let Memory::Ranges { ranges, .. } = self.memory() else {
            let why = "its allocations have names, by which its targets go (`buddy profile` writes them); only traces \
                       and generated programs go by address";
            return Err(Error::Setting(format!("{}: {why}", self.about().0)));
        };
        let mut touched = Touched::default();
        match self.work() {
            Work::Trace { items, .. } => {
                let kernel =
                    |item: &Item| if let Item::Kernel(path) = item { Some(path.clone()) } else { None };
                items.iter().filter_map(kernel).try_for_each(|path| touched.read(&path))?;
            }
            // A generated program accesses all that it allocates, and nothing else.
            Work::Application(_) => ranges.iter().for_each(|&(base, bytes)| touched.add(base, base + bytes)),
        }
        Ok(touched.beside(ranges))
    }
}

/// Spans of whole entries that are accessed, by their first address; no two touch each other.
#[derive(Default)]
struct Touched(BTreeMap<u64, u64>);

impl Touched {
    fn read(&mut self, path: &Path) -> Result<(), Error> {
        let (mut kernel, mut code) = (open_kernel(path)?, Code::default());
        self.kernel(kernel.as_mut(), &mut code)
    }

    fn kernel(&mut self, kernel: &mut dyn Kernel, code: &mut Code) -> Result<(), Error> {
        let (blocks, warps) = (kernel.launch().blocks(), kernel.launch().warps());
        for (block, warp) in (0..blocks).flat_map(|block| (0..warps).map(move |warp| (block, warp))) {
            for step in 0.. {
                kernel.fill(At { block, warp, step }, code)?;
                if code.insts().is_empty() {
                    break;
                }
                self.code(code);
                code.clear();
            }
        }
        Ok(())
    }

    fn code(&mut self, code: &Code) {
        for inst in code.insts().iter().filter(|inst| inst.op.is_global() && inst.mask != 0) {
            let width = u64::from(inst.width.max(1));
            match code.addresses(inst) {
                Addresses::Strided { base, stride } => {
                    let last = base.wrapping_add_signed(i64::from(stride) * i64::from(inst.lanes() - 1));
                    self.add(base.min(last), base.max(last).saturating_add(width));
                }
                Addresses::List(all) => all.iter().for_each(|&at| self.add(at, at.saturating_add(width))),
            }
        }
    }

    /// Adds the entries of a span and joins them with those that they meet.
    fn add(&mut self, start: u64, end: u64) {
        let (mut start, mut end) = (start / ENTRY * ENTRY, end.div_ceil(ENTRY).saturating_mul(ENTRY));
        let meets = |of: &BTreeMap<u64, u64>, from: u64, to: u64| {
            let (&first, &last) = of.range(..=to).next_back()?;
            (last >= from).then_some((first, last))
        };
        while let Some((first, last)) = meets(&self.0, start, end) {
            if first <= start && end <= last {
                return;
            }
            self.0.remove(&first);
            (start, end) = (start.min(first), end.max(last));
        }
        self.0.insert(start, end);
    }

    /// The stated ranges, which are sorted, and what was touched beyond them.
    fn beside(&self, stated: &[(u64, u64)]) -> Vec<Range> {
        let mut all: Vec<Range> = Vec::new();
        for &(base, bytes) in stated {
            let last = self.0.range(..base + bytes).next_back();
            let accessed = last.is_some_and(|(_, &end)| end > base);
            all.push(Range { base, bytes, stated: true, accessed });
        }
        for (&start, &end) in &self.0 {
            all.extend(without(start, end, stated).map(|(from, to)| Range {
                base: from,
                bytes: to - from,
                stated: false,
                accessed: true,
            }));
        }
        all.sort_unstable_by_key(|range| range.base);
        all.dedup_by(|next, last| {
            let joins = !next.stated && !last.stated && next.base - (last.base + last.bytes) <= GAP;
            if joins {
                last.bytes = next.base + next.bytes - last.base;
            }
            joins
        });
        all
    }
}

/// The parts of a span that lie in none of the stated ranges.
fn without(start: u64, end: u64, stated: &[(u64, u64)]) -> impl Iterator<Item = (u64, u64)> {
    let mut cuts = vec![start];
    for &(base, bytes) in stated {
        let to = (base + bytes).next_multiple_of(ENTRY);
        if to > start && base < end {
            cuts.extend([base.max(start), to.min(end)]);
        }
    }
    cuts.push(end);
    let parts: Vec<(u64, u64)> = cuts.chunks(2).map(|pair| (pair[0], pair[1])).collect();
    parts.into_iter().filter(|(from, to)| from < to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_that_lie_close_are_one_range_and_far_ones_are_two() {
        let mut touched = Touched::default();
        for (start, end) in [(0x10000, 0x10004), (0x10800, 0x10804), (0x90000, 0x90080), (0x10400, 0x10404)] {
            touched.add(start, end);
        }
        let ranges: Vec<(u64, u64)> = touched.beside(&[]).iter().map(|one| (one.base, one.bytes)).collect();
        assert_eq!(ranges, [(0x10000, 0x880), (0x90000, 0x80)]);
    }

    #[test]
    fn what_is_touched_beyond_a_stated_range_is_one_of_its_own() {
        let mut touched = Touched::default();
        touched.add(0x1000, 0x3000);
        let found = touched.beside(&[(0x1000, 0x1000), (0x100000, 0x80)]);
        let range = |base, bytes, stated, accessed| Range { base, bytes, stated, accessed };
        assert_eq!(
            found,
            [
                range(0x1000, 0x1000, true, true),
                range(0x2000, 0x1000, false, true),
                range(0x100000, 0x80, true, false)
            ]
        );
    }

    #[test]
    fn a_small_gap_between_two_copies_is_no_range() {
        let mut touched = Touched::default();
        touched.add(0x1000, 0x1d40);
        touched.add(0x1e00, 0x2000);
        let found = touched.beside(&[(0x1000, 0xd40), (0x1e00, 0x200)]);
        assert!(found.len() == 2 && found.iter().all(|one| one.stated && one.accessed), "{found:?}");
    }

    #[test]
    fn a_program_with_names_says_that_it_has_them() {
        let info = &buddy_workloads::ALL[0];
        let stage = Stage::unseen((info.build)(1_000_000, 1).application());
        assert!(stage.ranges().unwrap_err().to_string().contains("have names"));
    }
}
