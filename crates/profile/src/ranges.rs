//! Chooses targets for ranges of an allocation's pages.
//!
//! The page table holds a target per page, so the zero and the dense pages of an allocation can
//! have different targets. Each additional range has a cost, so that ranges differ substantially.

use std::iter::successors;

use buddy_core::{Blocks, ENTRY_BYTES, Histogram, SECTOR_BYTES, Target, TargetRange, stays_small};

use crate::allowed::{Allowed, link_bytes};

/// Cost of an additional range as a fraction of the allocation.
const RANGE_COST: f64 = 0.0002;
/// Cost of a byte in buddy memory, in bytes of device memory, since access goes over the link.
const BUDDY_WEIGHT: f64 = 2.0;
/// Weight at which no buddy memory is used.
const NO_BUDDY: f64 = 1e15;
/// Bisection steps for the weight.
const STEPS: usize = 20;

/// Returns the target ranges of an allocation of `pages` pages, given its blocks in each snapshot.
///
/// Minimises device bytes plus [`BUDDY_WEIGHT`] times the used buddy bytes plus [`RANGE_COST`] per
/// range. If that then exceeds a limit in some snapshot, raises the weight as little as
/// possible. The overflow that remains allowed goes to the first pages.
pub(crate) fn page_ranges(snapshots: &[Blocks], pages: u64, allowed: Allowed) -> Vec<TargetRange> {
    let mut blocks = blocks_of(snapshots, pages);
    blocks.iter_mut().for_each(|block| block.forbid(allowed.block));
    joined(&blocks, &within(&blocks, allowed))
}

/// Returns the blocks of an allocation of `pages` pages.
pub(crate) fn blocks_of(snapshots: &[Blocks], pages: u64) -> Vec<Block> {
    let each = snapshots.iter().map(Blocks::pages).max().unwrap_or(0).max(1);
    let block = |index: u64| {
        let over_time =
            snapshots.iter().map(|all| all.histogram(index as usize..index as usize + 1)).collect();
        Block::new(each.min(pages - index * each), over_time)
    };
    (0..pages.div_ceil(each)).map(block).collect()
}

/// Cost of overflow, relative to device memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Price {
    /// Cost of a byte in buddy memory, in device bytes.
    pub(crate) buddy: f64,
    /// Cost of an overflowing entry, in entries of 128 device bytes.
    pub(crate) entry: f64,
}

impl Price {
    /// Overflow is free.
    pub(crate) const NOTHING: Self = Self { buddy: 0.0, entry: 0.0 };

    /// Returns a price of `entry` per overflowing entry, in addition to [`BUDDY_WEIGHT`].
    pub(crate) fn of_entries(entry: f64) -> Self {
        Self { buddy: BUDDY_WEIGHT, entry }
    }

    fn of_bytes(buddy: f64) -> Self {
        Self { buddy, entry: 0.0 }
    }
}

/// Consecutive pages that share a target, with their histogram in each snapshot.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    pages: u64,
    over_time: Vec<Histogram>,
    /// Device bytes and mean used buddy bytes at each target; `None` for a target that is not
    /// allowed.
    bytes: [Option<(f64, f64)>; TARGETS],
    /// Weighted mean of the overflowing entries at each target.
    overflowing: [f64; TARGETS],
}

const TARGETS: usize = Target::ALL.len();

impl Block {
    pub(crate) fn new(pages: u64, over_time: Vec<Histogram>) -> Self {
        let entries = over_time.iter().map(Histogram::entries).max().unwrap_or(0);
        let small = stays_small(&over_time);
        let bytes = Target::ALL.map(|target| {
            let sectors: u64 = over_time.iter().map(|histogram| histogram.sectors(target).1).sum();
            let buddy = (sectors * SECTOR_BYTES as u64) as f64 / over_time.len().max(1) as f64;
            let device = (entries * target.device_bytes() as u64) as f64;
            (target != Target::X16 || small).then_some((device, buddy))
        });
        let overflowing = Target::ALL.map(|target| {
            let all: u64 = over_time.iter().map(|histogram| histogram.overflowing(target)).sum();
            all as f64 / over_time.len().max(1) as f64
        });
        Self { pages, over_time, bytes, overflowing }
    }

    /// Forbids the targets at which a larger share of its entries overflows in some snapshot.
    fn forbid(&mut self, most: f64) {
        for (bytes, target) in self.bytes.iter_mut().zip(Target::ALL) {
            if self.over_time.iter().any(|sizes| sizes.overflow_share(target) > most) {
                *bytes = None;
            }
        }
    }

    /// Sets the weight of overflowing entries in each snapshot.
    pub(crate) fn weigh(&mut self, weights: &[f64]) {
        let over = |target: Target| {
            let each = self.over_time.iter().zip(weights);
            each.map(|(histogram, weight)| weight * histogram.overflowing(target) as f64).sum::<f64>()
        };
        self.overflowing = Target::ALL.map(|target| over(target) / self.over_time.len().max(1) as f64);
    }

    /// Returns the cost at each target, in bytes.
    fn costs(&self, price: Price) -> [f64; TARGETS] {
        std::array::from_fn(|target| match self.bytes[target] {
            Some((device, buddy)) => {
                device + price.buddy * buddy + price.entry * ENTRY_BYTES as f64 * self.overflowing[target]
            }
            None => f64::INFINITY,
        })
    }
}

/// Returns the best targets within the limits, as an index into [`Target::ALL`] for each block.
fn within(blocks: &[Block], allowed: Allowed) -> Vec<usize> {
    let fits = |targets: &[usize]| fits(blocks, targets, allowed);
    let mut over = best(blocks, Price::of_bytes(BUDDY_WEIGHT));
    if fits(&over) {
        return over;
    }
    let (mut low, mut high) = (BUDDY_WEIGHT, NO_BUDDY);
    let mut under = best(blocks, Price::of_bytes(high));
    for _ in 0..STEPS {
        let weight = (low * high).sqrt();
        let tried = best(blocks, Price::of_bytes(weight));
        if fits(&tried) { (high, under) = (weight, tried) } else { (low, over) = (weight, tried) }
    }
    // Bisects the number of leading blocks that can have the targets of the lower weight.
    let (mut some, mut many) = (0, blocks.len());
    while some + 1 < many {
        let middle = some.midpoint(many);
        if fits(&[&over[..middle], &under[middle..]].concat()) { some = middle } else { many = middle }
    }
    [&over[..some], &under[some..]].concat()
}

/// Returns whether the blocks are within the limits in every snapshot.
fn fits(blocks: &[Block], targets: &[usize], allowed: Allowed) -> bool {
    let snapshots = blocks.first().map_or(0, |block| block.over_time.len());
    (0..snapshots).all(|snapshot| {
        let (mut overflowing, mut link, mut entries) = (0, 0, 0);
        for (block, &target) in blocks.iter().zip(targets) {
            let (sizes, target) = (&block.over_time[snapshot], Target::ALL[target]);
            overflowing += sizes.overflowing(target);
            link += link_bytes(sizes, target);
            entries += sizes.entries();
        }
        let share = |count: u64, of: u64| count as f64 / of.max(1) as f64;
        share(overflowing, entries) <= allowed.overflow
            && share(link, entries * ENTRY_BYTES as u64) <= allowed.link
    })
}

/// Returns the targets with the least cost, changes between blocks included, by dynamic
/// programming.
pub(crate) fn best(blocks: &[Block], price: Price) -> Vec<usize> {
    let entries = |block: &Block| block.over_time.iter().map(Histogram::entries).max().unwrap_or(0);
    let change = RANGE_COST * (blocks.iter().map(entries).sum::<u64>() * ENTRY_BYTES as u64) as f64;
    // The least sum so far that ends with each target, and the predecessors for each block.
    let mut sums = [0.0; TARGETS];
    let mut before = Vec::with_capacity(blocks.len());
    for block in blocks {
        let least = least(&sums);
        let from: [usize; TARGETS] =
            std::array::from_fn(|target| if sums[least] + change < sums[target] { least } else { target });
        let costs = block.costs(price);
        sums = std::array::from_fn(|target| {
            sums[from[target]] + costs[target] + if from[target] == target { 0.0 } else { change }
        });
        before.push(from);
    }
    let last = (blocks.len(), least(&sums));
    let path = successors(Some(last), |&(at, target)| Some((at.checked_sub(1)?, before[at - 1][target])));
    let mut targets: Vec<usize> = path.take(blocks.len()).map(|(_, target)| target).collect();
    targets.reverse();
    targets
}

/// Returns the index of the least sum, the first of equal ones.
fn least(sums: &[f64; TARGETS]) -> usize {
    (1..TARGETS).fold(0, |least, at| if sums[at] < sums[least] { at } else { least })
}

/// Returns the cost of blocks with these targets, in bytes, without the cost of ranges.
pub(crate) fn cost(blocks: &[Block], targets: &[usize], price: Price) -> f64 {
    blocks.iter().zip(targets).map(|(block, &target)| block.costs(price)[target]).sum()
}

/// Counts the overflowing entries with these targets in each snapshot.
pub(crate) fn overflowing(blocks: &[Block], targets: &[usize]) -> Vec<u64> {
    let snapshots = blocks.first().map_or(0, |block| block.over_time.len());
    let each = blocks.iter().zip(targets);
    let of = |snapshot: usize| {
        each.clone().map(|(block, &target)| block.over_time[snapshot].overflowing(Target::ALL[target])).sum()
    };
    (0..snapshots).map(of).collect()
}

/// Joins adjacent blocks with the same target into ranges.
pub(crate) fn joined(blocks: &[Block], targets: &[usize]) -> Vec<TargetRange> {
    let mut ranges: Vec<TargetRange> = Vec::new();
    for (block, &target) in blocks.iter().zip(targets) {
        let target = Target::ALL[target];
        match ranges.last_mut() {
            Some(last) if last.target == target => last.pages += block.pages,
            _ => ranges.push(TargetRange { pages: block.pages, target }),
        }
    }
    if ranges.is_empty() {
        ranges.push(TargetRange { pages: 0, target: Target::X1 });
    }
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
        let ranges = page_ranges(&[Blocks::from_pages(pages)], pages.len() as u64, Allowed::threshold(0.3));
        ranges.into_iter().map(|range| (range.pages, range.target)).collect()
    }

    #[test]
    fn different_pages_get_different_targets() {
        let pages = [[ZERO; 50].as_slice(), &[RAW; 30], &[HALF; 20]].concat();
        assert_eq!(ranges(&pages), [(50, Target::X16), (30, Target::X1), (20, Target::X2)]);
        assert_eq!(ranges(&[RAW; 3]), [(3, Target::X1)]);
        assert_eq!(ranges(&[]), [(0, Target::X1)]);
    }

    /// In 2000 pages, a page that saves half of itself saves less than two more ranges cost.
    #[test]
    fn single_pages_are_no_ranges() {
        let mut pages = vec![HALF; 2000];
        pages[77] = ZERO;
        pages[120] = RAW;
        assert_eq!(ranges(&pages), [(2000, Target::X2)]);
    }

    #[test]
    fn stripes_are_separated_and_large_allocations_are_cut_at_blocks() {
        let stripes: Vec<PageClasses> = (0..100).map(|i| if i % 4 == 2 { RAW } else { ZERO }).collect();
        let found = ranges(&stripes);
        assert_eq!(found[..3], [(2, Target::X16), (1, Target::X1), (3, Target::X16)]);
        assert_eq!(found.len(), 51);
        let large = [vec![ZERO; 50_000], vec![RAW; 50_001]].concat();
        let found = ranges(&large);
        assert_eq!(found.iter().map(|range| range.0).sum::<u64>(), 100_001);
        assert_eq!(found.iter().map(|range| range.1).collect::<Vec<_>>(), [Target::X16, Target::X1]);
        assert!(found[0].0.is_multiple_of(32) && found[0].0.abs_diff(50_000) < 32, "{found:?}");
    }

    /// Small numbers and constants need 8 bytes, as zeros do.
    #[test]
    fn entries_of_8_bytes_get_16x() {
        let small = [0, 64, 0, 0, 0, 0];
        let pages =
            [[small; 50].as_slice(), &[[10, 23, 31, 0, 0, 0]; 20], &[[10, 20, 34, 0, 0, 0]; 30]].concat();
        assert_eq!(ranges(&pages), [(50, Target::X16), (50, Target::X4)]);
    }

    /// In each page 5% of the entries overflow at 2x: all pages may at 5%, a fifth at 1%, none at
    /// 0.
    #[test]
    fn the_threshold_applies_to_the_whole_allocation() {
        let pages = [[0, 0, 0, 19, 0, 1]; 100];
        let found = |threshold| {
            let ranges = page_ranges(&[Blocks::from_pages(&pages)], 100, Allowed::threshold(threshold));
            ranges.into_iter().map(|range| (range.pages, range.target)).collect::<Vec<_>>()
        };
        assert_eq!(found(0.05), [(100, Target::X2)]);
        assert_eq!(found(0.01), [(20, Target::X2), (80, Target::X1)]);
        assert_eq!(found(0.0), [(100, Target::X1)]);
    }

    proptest! {
        /// Every snapshot is within the threshold, and 16x is used only where most entries fit 8
        /// bytes.
        #[test]
        fn every_snapshot_is_within_the_threshold(
            pages in proptest::collection::vec(proptest::collection::vec(0usize..6, 2), 1..60),
            threshold in 0.0f64..0.9,
        ) {
            let page = |class: usize| -> PageClasses { std::array::from_fn(|i| if i == class { 64 } else { 0 }) };
            let snapshot = |at: usize| pages.iter().map(|classes| page(classes[at])).collect::<Vec<_>>();
            let snapshots = [0, 1].map(|at| Blocks::from_pages(&snapshot(at)));
            let (mut first, mut overflowing) = (0, [0; 2]);
            for range in page_ranges(&snapshots, pages.len() as u64, Allowed::threshold(threshold)) {
                let end = first + range.pages as usize;
                for (snapshot, overflowing) in snapshots.iter().zip(&mut overflowing) {
                    let all = snapshot.histogram(first..end);
                    *overflowing += all.overflowing(range.target);
                    prop_assert!(range.target != Target::X16 || 2 * all.overflowing(Target::X16) < all.entries());
                }
                first = end;
            }
            prop_assert_eq!(first, pages.len());
            let most = (threshold * 64.0 * pages.len() as f64) as u64;
            prop_assert!(overflowing.iter().all(|count| *count <= most), "{:?} of {}", overflowing, most);
        }

        /// Compares three blocks with brute force, without a binding threshold.
        #[test]
        fn the_targets_have_the_least_cost(pages in proptest::collection::vec(proptest::array::uniform6(1u8..9), 3)) {
            let snapshots = [Blocks::from_pages(&pages)];
            let block = |at: usize| Block::new(1, vec![snapshots[0].histogram(at..at + 1)]);
            let blocks: Vec<Block> = (0..3).map(block).collect();
            let entries: u64 = blocks.iter().map(|block| block.over_time[0].entries()).sum();
            let cost = |targets: &[usize]| {
                let changes = targets.windows(2).filter(|pair| pair[0] != pair[1]).count();
                let bytes = blocks.iter().zip(targets).map(|(block, &target)| block.costs(Price::of_bytes(BUDDY_WEIGHT))[target]);
                bytes.sum::<f64>() + changes as f64 * RANGE_COST * (entries * ENTRY_BYTES as u64) as f64
            };
            let all = (0..125).map(|i| [i / 25, i / 5 % 5, i % 5]);
            let least = all.map(|targets| cost(&targets)).fold(f64::INFINITY, f64::min);
            let found = cost(&best(&blocks, Price::of_bytes(BUDDY_WEIGHT)));
            prop_assert!((found - least).abs() < 1e-6, "{} and {}", found, least);
        }
    }
}
