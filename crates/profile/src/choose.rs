//! Chooses the codec of an allocation: the rule behind `auto`.

use buddy_codec::{Codec, CodecKind, EntryCodec};
use buddy_core::{Entry, Histogram, conservative_target};
use rayon::prelude::*;

use crate::estimate::Estimate;

/// The paper's Buddy Threshold: the fraction of an allocation's entries that may overflow.
pub const DEFAULT_THRESHOLD: f64 = 0.30;

/// Where compressed memory is used. A codec is recommended only if it can run there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Memory that is written and read, in software or on a GPU: codecs with kernels.
    Memory,
    /// Frozen buffers and packed files, whose header holds no table.
    Frozen,
}

/// Returns the codecs that may be chosen: BPC and this project's own codecs, as far as the place of
/// use runs them.
///
/// The other codecs of the paper serve for comparison only; a GPU would decode them word by word. `near64`
/// is excluded because it serves kernels written for it and never saves more than two sectors, and
/// `bpc-best` because it is a second reading of the paper's codec.
pub fn candidates(place: Place) -> Vec<CodecKind> {
    let eligible = |kind: &CodecKind| match kind {
        CodecKind::Bpc => true,
        CodecKind::Near64 | CodecKind::BpcBest => false,
        _ => !CodecKind::PAPER.contains(kind),
    };
    let runs = |kind: &CodecKind| place == Place::Memory || kind.freezes();
    CodecKind::ALL.into_iter().filter(eligible).filter(runs).collect()
}

/// Cost of a codec for an allocation (lower is better): device bytes at the largest target within
/// the threshold, parameters included, then overflowing entries, then stored bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Score(u64, u64, u64);

impl Score {
    /// Scores a codec by its histograms of an allocation in each snapshot and its parameter bytes.
    pub(crate) fn of(snapshots: &[Histogram], parameter_bytes: u64, threshold: f64) -> Self {
        let target = conservative_target(snapshots, threshold, true);
        let sum = |count: fn(&Histogram) -> u64| snapshots.iter().map(count).sum::<u64>();
        let overflowing = snapshots.iter().map(|histogram| histogram.overflowing(target)).sum();
        let entries = snapshots.iter().map(Histogram::entries).max().unwrap_or(0);
        let stored = sum(Histogram::stored_bytes) + parameter_bytes * snapshots.len() as u64;
        Self(entries * target.device_bytes() as u64 + parameter_bytes, overflowing, stored)
    }
}

/// Chooses the best codec among `kinds` by samples of an allocation, one per snapshot.
///
/// Minimises device memory at the threshold, then overflowing entries, then stored bytes. The first
/// kind wins a tie.
///
/// # Panics
/// If `kinds` is empty.
pub fn choose_codec(samples: &[Vec<Entry>], kinds: &[CodecKind], threshold: f64) -> Codec {
    choose_codecs(samples, kinds, threshold).remove(0)
}

/// Returns the codec of [`choose_codec`] first, then up to three others without duplicates.
///
/// The others need the least device memory with page targets, once constant and once per snapshot,
/// and the fewest stored bytes. The best codec for a uniform target may not be the best for page
/// ranges.
///
/// # Panics
/// If `kinds` is empty.
pub fn choose_codecs(samples: &[Vec<Entry>], kinds: &[CodecKind], threshold: f64) -> Vec<Codec> {
    let all: Vec<Entry> = samples.concat();
    best_codecs(samples, kinds, |kind| kind.train(&all), threshold, 1.0)
}

/// A codec with its estimated cost for an allocation.
struct Candidate {
    codec: Codec,
    score: Score,
    /// Device bytes with one set of page targets for all snapshots.
    constant: f64,
    /// Mean device bytes with page targets per snapshot.
    over_time: f64,
}

/// Like [`choose_codecs`], with codecs made by `ready`. `scale` is the ratio of the allocation to
/// its samples, by which parameter bytes are divided.
pub(crate) fn best_codecs(
    samples: &[Vec<Entry>],
    kinds: &[CodecKind],
    ready: impl Fn(&CodecKind) -> Codec + Sync,
    threshold: f64,
    scale: f64,
) -> Vec<Codec> {
    assert!(!kinds.is_empty(), "no codec kinds to choose from");
    let candidate = |kind: &CodecKind| {
        let codec = ready(kind);
        let parameter_bytes = codec.parameter_bytes() as f64 / scale;
        let estimate = Estimate::new(samples, &codec);
        let (constant, over_time) = estimate.device(threshold);
        let score = Score::of(&estimate.histograms(), parameter_bytes as u64, threshold);
        Candidate {
            codec,
            score,
            constant: constant + parameter_bytes,
            over_time: over_time + parameter_bytes,
        }
    };
    let all: Vec<Candidate> = kinds.par_iter().map(candidate).collect();
    let by_pages = |device: fn(&Candidate) -> f64| {
        let less = |one: &&Candidate, other: &&Candidate| {
            device(one).total_cmp(&device(other)).then(one.score.2.cmp(&other.score.2))
        };
        all.iter().min_by(less)
    };
    let best = all.iter().min_by_key(|one| one.score);
    let fewest = all.iter().min_by_key(|one| one.score.2);
    let found = [best, by_pages(|one| one.constant), by_pages(|one| one.over_time), fewest];
    let mut codecs: Vec<Codec> = Vec::new();
    for Candidate { codec, .. } in found.into_iter().flatten() {
        if !codecs.contains(codec) {
            codecs.push(codec.clone());
        }
    }
    codecs
}

#[cfg(test)]
mod tests {
    use buddy_core::ZERO_ENTRY;

    use super::*;

    #[test]
    fn empty_samples_give_bpc() {
        for sample in [vec![], vec![ZERO_ENTRY]] {
            assert_eq!(choose_codec(&[sample], &candidates(Place::Memory), 0.3).kind(), CodecKind::Bpc);
        }
        assert_eq!(choose_codec(&[], &candidates(Place::Memory), 0.3).kind(), CodecKind::Bpc);
        assert!(candidates(Place::Memory).contains(&CodecKind::Bpc));
    }
}
