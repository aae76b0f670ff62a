//! Estimates the device memory of an allocation with page targets from samples.
//!
//! A sample consists of short runs of entries at the same offsets in every snapshot. Each run
//! represents the pages around it. This separates a codec that suits half of an array from one that
//! is fair everywhere.

use buddy_codec::Codec;
use buddy_core::{Entry, Histogram, SizeClass};

use crate::{
    look::classes,
    ranges::{Block, Price, best, cost},
    sample::RUN_ENTRIES,
    share::least_within,
};

/// Smallest threshold for samples: a thousand entries do not resolve smaller fractions.
const LEAST_THRESHOLD: f64 = 0.01;

/// Cost of an overflowing entry when codecs are compared, in entries of device memory. At equal
/// device memory, the codec with less overflow also wins at smaller thresholds.
const OVERFLOW: f64 = 4.0;

/// Size classes of an allocation's samples with one codec.
pub(crate) struct Estimate {
    /// Histograms of the sampled runs, per snapshot.
    over_time: Vec<Vec<Histogram>>,
}

impl Estimate {
    /// Classifies the samples, one per snapshot.
    pub(crate) fn new(samples: &[Vec<Entry>], codec: &Codec) -> Self {
        let run = |classes: &[SizeClass]| {
            let mut run = Histogram::default();
            classes.iter().for_each(|&class| run.add(class, 0));
            run
        };
        let runs = |sample: &Vec<Entry>| classes(sample, codec).chunks(RUN_ENTRIES).map(run).collect();
        Self { over_time: samples.iter().map(runs).collect() }
    }

    /// Returns the histogram of each snapshot's sample.
    pub(crate) fn histograms(&self) -> Vec<Histogram> {
        self.over_time.iter().map(|runs| runs.iter().copied().sum()).collect()
    }

    /// Returns the device bytes with one set of targets for all snapshots, and the mean over the
    /// snapshots with separate targets for each.
    pub(crate) fn device(&self, threshold: f64) -> (f64, f64) {
        let threshold = threshold.max(LEAST_THRESHOLD);
        let alive: Vec<&[Histogram]> =
            self.over_time.iter().filter(|runs| !runs.is_empty()).map(Vec::as_slice).collect();
        let each = alive.iter().map(|runs| least_device(&[*runs], threshold)).sum::<f64>();
        (least_device(&alive, threshold), each / alive.len().max(1) as f64)
    }
}

/// Returns the least cost of targets within the threshold in each of these snapshots.
fn least_device(snapshots: &[&[Histogram]], threshold: f64) -> f64 {
    let runs = snapshots.iter().map(|runs| runs.len()).min().unwrap_or(0);
    let block = |run: usize| Block::new(1, snapshots.iter().map(|runs| runs[run]).collect());
    let blocks: Vec<Block> = (0..runs).map(block).collect();
    let entries: Vec<u64> = snapshots.iter().map(|runs| runs.iter().map(Histogram::entries).sum()).collect();
    let price = least_within(&blocks, &entries, threshold);
    cost(&blocks, &best(&blocks, Price::of_entries(price)), Price::of_entries(OVERFLOW))
}

#[cfg(test)]
mod tests {
    use buddy_codec::{CodecKind, samples::Noise};
    use buddy_core::ZERO_ENTRY;

    use super::*;

    fn noise(entries: usize, seed: u64) -> Vec<Entry> {
        let mut noise = Noise(seed);
        (0..entries).map(|_| std::array::from_fn(|_| noise.next() as u8)).collect()
    }

    /// Half of the allocation is zeros: uniform it has 1x, by page 16x and 1x.
    #[test]
    fn page_targets_separate_zeros_from_noise() {
        let sample = [vec![ZERO_ENTRY; 512], noise(512, 1)].concat();
        let estimate = Estimate::new(&[sample], &CodecKind::Bpc.train(&[]));
        let (constant, over_time) = estimate.device(0.01);
        assert_eq!(constant, (512 * 8 + 512 * 128) as f64);
        assert_eq!(over_time, constant, "one snapshot");
        assert_eq!(estimate.histograms()[0].entries(), 1024);
    }

    /// An allocation that fills up needs 1x throughout, or 16x and 1x with targets per snapshot.
    #[test]
    fn targets_per_snapshot_need_less_than_constant_ones() {
        let samples = [vec![ZERO_ENTRY; 512], noise(512, 2)];
        let (constant, over_time) = Estimate::new(&samples, &CodecKind::Bpc.train(&[])).device(0.01);
        assert_eq!((constant, over_time), ((512 * 128) as f64, (512 * (8 + 128) / 2) as f64));
    }
}
