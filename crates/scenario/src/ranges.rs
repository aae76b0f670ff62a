//! Address ranges of a trace or generated program, the keys of an addressed targets file.

use std::{collections::BTreeMap, path::Path};

use buddy_core::ENTRY_BYTES;
use buddy_trace::{Addresses, At, Code, Item, Kernel, open_kernel};

use crate::{
    Error, Stage,
    stage::{Memory, Work},
};

/// Accesses further apart than this many bytes count as separate ranges, unless stated.
const GAP: u64 = 4096;
const ENTRY: u64 = ENTRY_BYTES as u64;

/// An address range of whole entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first address.
    pub base: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// True if the program copies to it or allocates it; false if only seen in accesses.
    pub stated: bool,
    /// True if a kernel accesses it.
    pub accessed: bool,
}

impl Stage {
    /// Returns the address ranges that a trace or generated program copies to, allocates or
    /// accesses. Reads the whole trace.
    ///
    /// # Errors
    /// A program with named allocations, or an invalid trace.
    pub fn ranges(&self) -> Result<Vec<Range>, Error> {
        let Memory::Ranges { ranges, .. } = self.memory() else {
            let why = "its targets go by the names of its allocations (`buddy profile` writes them); only traces \
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
            // A generated program accesses exactly what it allocates.
            Work::Application(_) => ranges.iter().for_each(|&(base, bytes)| touched.add(base, base + bytes)),
        }
        Ok(touched.with_stated(ranges))
    }
}

/// Accessed spans of whole entries by first address; disjoint and not adjacent.
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

    /// Adds the entries of a span and merges it with the spans it meets.
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

    /// Returns the stated ranges, which are sorted, and the touched ranges outside them.
    fn with_stated(&self, stated: &[(u64, u64)]) -> Vec<Range> {
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

/// Returns the parts of a span outside the stated ranges.
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
    fn close_accesses_form_one_range_and_distant_ones_two() {
        let mut touched = Touched::default();
        for (start, end) in [(0x10000, 0x10004), (0x10800, 0x10804), (0x90000, 0x90080), (0x10400, 0x10404)] {
            touched.add(start, end);
        }
        let ranges: Vec<(u64, u64)> =
            touched.with_stated(&[]).iter().map(|one| (one.base, one.bytes)).collect();
        assert_eq!(ranges, [(0x10000, 0x880), (0x90000, 0x80)]);
    }

    #[test]
    fn accesses_outside_a_stated_range_form_their_own() {
        let mut touched = Touched::default();
        touched.add(0x1000, 0x3000);
        let found = touched.with_stated(&[(0x1000, 0x1000), (0x100000, 0x80)]);
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
        let found = touched.with_stated(&[(0x1000, 0xd40), (0x1e00, 0x200)]);
        assert!(found.len() == 2 && found.iter().all(|one| one.stated && one.accessed), "{found:?}");
    }

    #[test]
    fn named_allocations_have_no_address_ranges() {
        let info = &buddy_workloads::ALL[0];
        let stage = Stage::unseen((info.build)(1_000_000, 1).application());
        assert!(stage.ranges().unwrap_err().to_string().contains("go by the names"));
    }
}
