//! What targets by page would take of an allocation, judged by samples of it.
//!
//! A sample is short runs of entries at the same places in every snapshot. Each run stands for the pages around it, so that
//! a codec that is good for one half of an array and another that is fair everywhere are told apart.

use buddy_codec::Codec;
use buddy_core::{Entry, Histogram, SizeClass};

use crate::{
    look::classes,
    ranges::{Block, Price, best, cost},
    sample::RUN_ENTRIES,
    together::least_within,
};

/// What may overflow at least where samples are judged: a thousand entries do not tell less.
const LEAST_THRESHOLD: f64 = 0.01;

/// What an entry that overflows counts where codecs are compared, in entries: of two that take the same device memory the one that overflows
/// less is the better one at a smaller threshold too.
const OVERFLOW: f64 = 4.0;

/// The sizes of an allocation's samples with one codec.
pub(crate) struct Estimate {
    /// The runs of every snapshot.
    over_time: Vec<Vec<Histogram>>,
}

impl Estimate {
    /// Sizes the samples, one for each snapshot.
    pub(crate) fn new(samples: &[Vec<Entry>], codec: &Codec) -> Self {
        let run = |classes: &[SizeClass]| {
            let mut run = Histogram::default();
            classes.iter().for_each(|&class| run.add(class, 0));
            run
        };
        let runs = |sample: &Vec<Entry>| classes(sample, codec).chunks(RUN_ENTRIES).map(run).collect();
        Self { over_time: samples.iter().map(runs).collect() }
    }

    /// All runs of each snapshot.
    pub(crate) fn histograms(&self) -> Vec<Histogram> {
        self.over_time.iter().map(|runs| runs.iter().copied().sum()).collect()
    }

    /// Device memory with one set of targets for all snapshots, and as the mean of the snapshots with one for each.
    pub(crate) fn device(&self, threshold: f64) -> (f64, f64) {
        let threshold = threshold.max(LEAST_THRESHOLD);
        let alive: Vec<&[Histogram]> =
            self.over_time.iter().filter(|runs| !runs.is_empty()).map(Vec::as_slice).collect();
        let each = alive.iter().map(|runs| least_device(&[*runs], threshold)).sum::<f64>();
        (least_device(&alive, threshold), each / alive.len().max(1) as f64)
    }
}

/// The least device memory with which some snapshots are within the threshold.
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

    /// Half of an allocation is zeros: as a whole it has 1x, by page 16x and 1x.
    #[test]
    fn parts_have_targets_of_their_own() {
        let sample = [vec![ZERO_ENTRY; 512], noise(512, 1)].concat();
        let estimate = Estimate::new(&[sample], &CodecKind::Bpc.train(&[]));
        let (constant, over_time) = estimate.device(0.01);
        assert_eq!(constant, (512 * 8 + 512 * 128) as f64);
        assert_eq!(over_time, constant, "one snapshot");
        assert_eq!(estimate.histograms()[0].entries(), 1024);
    }

    /// What fills up takes all of it with one set of targets, and half as the mean of two.
    #[test]
    fn snapshots_have_targets_of_their_own() {
        let samples = [vec![ZERO_ENTRY; 512], noise(512, 2)];
        let (constant, over_time) = Estimate::new(&samples, &CodecKind::Bpc.train(&[])).device(0.01);
        assert_eq!((constant, over_time), ((512 * 128) as f64, (512 * (8 + 128) / 2) as f64));
    }
}
