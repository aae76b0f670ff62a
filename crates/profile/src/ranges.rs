//! A target for each of a few ranges of pages.
//!
//! The page table holds a target per page, so an allocation that is part zero and part dense need not settle for
//! one. But many small ranges help nobody: a range must pay for itself.

use std::ops::Range;

use buddy_core::{Blocks, ENTRY_BYTES, Histogram, Target, TargetRange, conservative_target};

/// A further range must save this share of the allocation.
const RANGE_COST: f64 = 0.01;

/// The ranges of an allocation of so many pages, given the classes of its blocks in each snapshot.
///
/// Every page has the largest target that the threshold allows it in every snapshot; a range has the smallest one
/// of its pages, so that what lies in it is never worse off. The ranges are those that take the least device memory
/// when each costs a hundredth of the allocation. Where one target for all of it, by its own threshold, takes less
/// than that, as with fine stripes, it gets the one target.
///
/// Large allocations are cut at blocks of pages rather than at any page; the best cut is found by dynamic
/// programming.
pub(crate) fn page_ranges(snapshots: &[Blocks], pages: u64, threshold: f64) -> Vec<TargetRange> {
    let each = Blocks::pages_of(pages);
    let count = pages.div_ceil(each) as usize;
    let whole = Block::new(snapshots, 0..count, pages, threshold);
    let block = |index: usize| {
        let pages = each.min(pages - index as u64 * each);
        Block::new(snapshots, index..index + 1, pages, threshold)
    };
    let blocks: Vec<Block> = (0..count).map(block).collect();
    let cost = RANGE_COST * (whole.entries * ENTRY_BYTES as u64) as f64;
    let (device, ranges) = cut(&blocks, cost);
    if device < whole.device_bytes() as f64 + cost {
        return ranges;
    }
    vec![TargetRange { pages, target: whole.target }]
}

/// Pages that get one target.
#[derive(Debug, Clone, Copy)]
struct Block {
    pages: u64,
    entries: u64,
    target: Target,
}

impl Block {
    fn new(snapshots: &[Blocks], blocks: Range<usize>, pages: u64, threshold: f64) -> Self {
        let over_time: Vec<Histogram> = snapshots.iter().map(|all| all.histogram(blocks.clone())).collect();
        Self {
            pages,
            entries: over_time.iter().map(Histogram::entries).max().unwrap_or(0),
            target: conservative_target(&over_time, threshold, true),
        }
    }

    fn device_bytes(&self) -> u64 {
        self.entries * self.target.device_bytes() as u64
    }

    /// Both together, with the smaller target.
    fn join(&self, other: &Self) -> Self {
        Self {
            pages: self.pages + other.pages,
            entries: self.entries + other.entries,
            target: self.target.min(other.target),
        }
    }
}

/// The ranges with the least device bytes plus `cost` for each of them, and that sum.
fn cut(blocks: &[Block], cost: f64) -> (f64, Vec<TargetRange>) {
    // For the first so many blocks: the least sum, where their last range begins, and what it is.
    let mut best: Vec<(f64, usize, Option<Block>)> = vec![(0.0, 0, None)];
    for end in 1..=blocks.len() {
        let mut range: Option<Block> = None;
        let mut least = (f64::INFINITY, 0, None);
        for start in (0..end).rev() {
            let longer = range.map_or(blocks[start], |range| blocks[start].join(&range));
            let sum = best[start].0 + longer.device_bytes() as f64 + cost;
            if sum < least.0 {
                least = (sum, start, Some(longer));
            }
            range = Some(longer);
        }
        best.push(least);
    }
    let mut ranges = Vec::new();
    let mut end = blocks.len();
    while let (_, start, Some(range)) = best[end] {
        ranges.push(TargetRange { pages: range.pages, target: range.target });
        end = start;
    }
    ranges.reverse();
    (best[blocks.len()].0, ranges)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::PageClasses;

    const ZERO: PageClasses = [64, 0, 0, 0, 0, 0];
    const HALF: PageClasses = [0, 0, 0, 64, 0, 0];
    const RAW: PageClasses = [0, 0, 0, 0, 0, 64];

    fn ranges(pages: &[PageClasses]) -> Vec<(u64, Target)> {
        let ranges = page_ranges(&[Blocks::from_pages(pages)], pages.len() as u64, 0.3);
        ranges.into_iter().map(|range| (range.pages, range.target)).collect()
    }

    #[test]
    fn parts_that_differ_are_told_apart() {
        let pages = [[ZERO; 50].as_slice(), &[RAW; 30], &[HALF; 20]].concat();
        assert_eq!(ranges(&pages), [(50, Target::X16), (30, Target::X1), (20, Target::X2)]);
        assert_eq!(ranges(&[RAW; 3]), [(3, Target::X1)]);
        assert_eq!(ranges(&[]), [(0, Target::X1)]);
    }

    #[test]
    fn a_page_now_and_then_is_no_range_of_its_own() {
        let mut pages = vec![HALF; 200];
        pages[77] = ZERO;
        pages[120] = RAW;
        assert_eq!(ranges(&pages), [(200, Target::X2)]);
    }

    #[test]
    fn stripes_stay_together_and_large_allocations_are_cut_at_blocks() {
        let stripes: Vec<PageClasses> = (0..100).map(|i| if i % 4 == 0 { RAW } else { ZERO }).collect();
        assert_eq!(ranges(&stripes), [(100, Target::X16)], "a quarter may overflow");
        let large = [vec![ZERO; 5000], vec![RAW; 5001]].concat();
        let found = ranges(&large);
        assert_eq!(found.iter().map(|range| range.0).sum::<u64>(), 10_001);
        assert_eq!(found.iter().map(|range| range.1).collect::<Vec<_>>(), [Target::X16, Target::X1]);
        assert!(found[0].0.is_multiple_of(64) && found[0].0.abs_diff(5000) < 64, "{found:?}");
    }

    proptest! {
        /// In every snapshot every page is within the threshold, or the allocation as a whole is; and ranges never
        /// take more memory than the one target.
        #[test]
        fn every_range_is_conservative(
            pages in proptest::collection::vec(proptest::collection::vec(0usize..6, 2), 1..60),
            threshold in 0.05f64..0.9,
        ) {
            let page = |class: usize| -> PageClasses { std::array::from_fn(|i| if i == class { 64 } else { 0 }) };
            let snapshot = |at: usize| pages.iter().map(|classes| page(classes[at])).collect::<Vec<_>>();
            let snapshots = [0, 1].map(|at| Blocks::from_pages(&snapshot(at)));
            let target = |range: Range<usize>| {
                let over_time: Vec<Histogram> =
                    snapshots.iter().map(|pages| pages.histogram(range.clone())).collect();
                conservative_target(&over_time, threshold, true)
            };
            let found = page_ranges(&snapshots, pages.len() as u64, threshold);
            let whole = target(0..pages.len());
            let mut first = 0;
            for range in &found {
                let end = first + range.pages as usize;
                let least = (first..end).map(|page| target(page..page + 1)).min().unwrap();
                prop_assert!(range.target == least || (found.len() == 1 && range.target == whole));
                first = end;
            }
            prop_assert_eq!(first, pages.len());
            let device: u64 = found.iter().map(|range| range.pages * range.target.device_bytes() as u64).sum();
            prop_assert!(device <= (pages.len() * whole.device_bytes()) as u64);
        }
    }
}
