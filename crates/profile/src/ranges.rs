//! A target for each of a few ranges of pages.
//!
//! The page table holds a target per page, so an allocation that is part zero and part dense need not settle for
//! one. But many small ranges help nobody: a range must pay for itself.

use buddy_core::{Blocks, ENTRY_BYTES, Histogram, SECTOR_BYTES, Target, TargetRange, conservative_target};

/// A further range must save this share of the allocation.
const RANGE_COST: f64 = 0.01;

/// The ranges of an allocation of so many pages, given the classes of its blocks in each snapshot.
///
/// A range is treated as an allocation is: it has the largest target at which, in every snapshot, no more than the
/// threshold's share of its entries overflow. The ranges are those that take the least memory, on the device and what is used
/// of the buddy slots twice, when each costs a hundredth of the allocation: that a range may overflow is no gain by itself.
///
/// Large allocations are cut at blocks of pages rather than at any page; the best cut is found by dynamic
/// programming.
pub(crate) fn page_ranges(snapshots: &[Blocks], pages: u64, threshold: f64) -> Vec<TargetRange> {
    if pages == 0 {
        return vec![TargetRange { pages, target: Target::X1 }];
    }
    let each = Blocks::pages_of(pages);
    let block = |index: u64| Part {
        pages: each.min(pages - index * each),
        over_time: snapshots.iter().map(|all| all.histogram(index as usize..index as usize + 1)).collect(),
    };
    let blocks: Vec<Part> = (0..pages.div_ceil(each)).map(block).collect();
    let entries: u64 = blocks.iter().map(Part::entries).sum();
    cut(&blocks, RANGE_COST * (entries * ENTRY_BYTES as u64) as f64, threshold)
}

/// Pages that get one target: their entries by class in each snapshot.
#[derive(Debug, Clone)]
struct Part {
    pages: u64,
    over_time: Vec<Histogram>,
}

impl Part {
    /// Its entries; the same in every snapshot in which it is alive.
    fn entries(&self) -> u64 {
        self.over_time.iter().map(Histogram::entries).max().unwrap_or(0)
    }

    /// Bytes on the device and in buddy slots at a target, the mean of the snapshots; what lies across the link counts twice.
    fn bytes(&self, target: Target) -> f64 {
        let sectors: u64 = self.over_time.iter().map(|histogram| histogram.sectors(target).1).sum();
        let buddy = (2 * sectors * SECTOR_BYTES as u64) as f64 / self.over_time.len().max(1) as f64;
        (self.entries() * target.device_bytes() as u64) as f64 + buddy
    }

    /// Both together.
    fn join(&mut self, other: &Self) {
        self.pages += other.pages;
        self.over_time.iter_mut().zip(&other.over_time).for_each(|(all, more)| *all += *more);
    }
}

/// The ranges with the least bytes plus `cost` for each of them.
fn cut(blocks: &[Part], cost: f64, threshold: f64) -> Vec<TargetRange> {
    // For the first so many blocks: the least sum, where their last range begins, and what it is.
    let mut best: Vec<(f64, usize, TargetRange)> =
        vec![(0.0, 0, TargetRange { pages: 0, target: Target::X1 })];
    for end in 1..=blocks.len() {
        let mut range = blocks[end - 1].clone();
        let mut least = (f64::INFINITY, 0, best[0].2);
        for start in (0..end).rev() {
            if start + 1 < end {
                range.join(&blocks[start]);
            }
            let target = conservative_target(&range.over_time, threshold, true);
            let sum = best[start].0 + range.bytes(target) + cost;
            if sum < least.0 {
                least = (sum, start, TargetRange { pages: range.pages, target });
            }
        }
        best.push(least);
    }
    let mut ranges = Vec::new();
    let mut end = blocks.len();
    while end > 0 {
        let (_, start, range) = best[end];
        ranges.push(range);
        end = start;
    }
    ranges.reverse();
    ranges
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
        let stripes: Vec<PageClasses> = (0..100).map(|i| if i % 4 == 2 { RAW } else { ZERO }).collect();
        assert_eq!(ranges(&stripes), [(100, Target::X16)], "a quarter may overflow");
        let large = [vec![ZERO; 5000], vec![RAW; 5001]].concat();
        let found = ranges(&large);
        assert_eq!(found.iter().map(|range| range.0).sum::<u64>(), 10_001);
        assert_eq!(found.iter().map(|range| range.1).collect::<Vec<_>>(), [Target::X16, Target::X1]);
        assert!(found[0].0.is_multiple_of(64) && found[0].0.abs_diff(5000) < 64, "{found:?}");
    }

    /// At 5% a twentieth of a range may overflow, whichever of its pages they lie in; at 1% those pages stand apart.
    #[test]
    fn what_may_overflow_is_counted_over_a_range() {
        let mut pages = vec![HALF; 100];
        (0..100).step_by(25).for_each(|page| pages[page] = RAW);
        let blocks = [Blocks::from_pages(&pages)];
        assert_eq!(page_ranges(&blocks, 100, 0.05), [TargetRange { pages: 100, target: Target::X2 }]);
        let found = page_ranges(&blocks, 100, 0.01);
        let targets: Vec<(u64, Target)> = found.iter().map(|range| (range.pages, range.target)).collect();
        assert_eq!(targets, [(1, Target::X1), (24, Target::X2)].repeat(4));
    }

    proptest! {
        /// In every snapshot every range is within the threshold, by the rule for allocations.
        #[test]
        fn every_range_is_conservative(
            pages in proptest::collection::vec(proptest::collection::vec(0usize..6, 2), 1..60),
            threshold in 0.05f64..0.9,
        ) {
            let page = |class: usize| -> PageClasses { std::array::from_fn(|i| if i == class { 64 } else { 0 }) };
            let snapshot = |at: usize| pages.iter().map(|classes| page(classes[at])).collect::<Vec<_>>();
            let snapshots = [0, 1].map(|at| Blocks::from_pages(&snapshot(at)));
            let target = |range: std::ops::Range<usize>| {
                let over_time: Vec<Histogram> =
                    snapshots.iter().map(|pages| pages.histogram(range.clone())).collect();
                conservative_target(&over_time, threshold, true)
            };
            let mut first = 0;
            for range in page_ranges(&snapshots, pages.len() as u64, threshold) {
                let end = first + range.pages as usize;
                prop_assert_eq!(range.target, target(first..end));
                first = end;
            }
            prop_assert_eq!(first, pages.len());
        }
    }
}
