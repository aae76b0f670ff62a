//! Which codec an allocation gets: the rule behind `auto`.

use buddy_codec::{Codec, CodecKind, EntryCodec};
use buddy_core::{Entry, Histogram, conservative_target};
use rayon::prelude::*;

use crate::estimate::Estimate;

/// The paper's Buddy Threshold: the share of an allocation's entries that may need buddy memory.
pub const DEFAULT_THRESHOLD: f64 = 0.30;

/// The codecs that an allocation may be given: the paper's choice and ours. The others that the paper compares
/// with it are for the comparison only; a GPU would walk them word by word. `near64` is for kernels that are written for
/// it: it never saves more than two sectors.
pub fn candidates() -> Vec<CodecKind> {
    let eligible = |kind: &CodecKind| match kind {
        CodecKind::Bpc => true,
        CodecKind::Near64 => false,
        _ => !CodecKind::PAPER.contains(kind),
    };
    CodecKind::ALL.into_iter().filter(eligible).collect()
}

/// How well a codec does: the device bytes at the largest target that the threshold allows, with those of its parameters,
/// then the entries in buddy memory at it, then the bytes of all. Less is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Score(u64, u64, u64);

impl Score {
    /// The score of a codec on an allocation, whose snapshots these are, if it keeps so many bytes beside them.
    pub(crate) fn of(snapshots: &[Histogram], parameter_bytes: u64, threshold: f64) -> Self {
        let target = conservative_target(snapshots, threshold, true);
        let sum = |count: fn(&Histogram) -> u64| snapshots.iter().map(count).sum::<u64>();
        let overflowing = snapshots.iter().map(|histogram| histogram.overflowing(target)).sum();
        let entries = snapshots.iter().map(Histogram::entries).max().unwrap_or(0);
        let stored = sum(Histogram::stored_bytes) + parameter_bytes * snapshots.len() as u64;
        Self(entries * target.device_bytes() as u64 + parameter_bytes, overflowing, stored)
    }
}

/// The codec among `kinds` that does best on samples of an allocation, one for each snapshot: the least device memory at
/// the threshold, then the fewest entries in buddy memory at it, then the fewest bytes. The first one wins a tie.
///
/// # Panics
/// If `kinds` is empty.
pub fn choose_codec(samples: &[Vec<Entry>], kinds: &[CodecKind], threshold: f64) -> Codec {
    choose_codecs(samples, kinds, threshold).remove(0)
}

/// The best codec of [`choose_codec`] first, and then those that take the least device memory with targets by page, one set for
/// all snapshots and one for each, and the one whose entries take the fewest bytes, if these are others: what is best for a whole
/// allocation may not be for its parts.
///
/// # Panics
/// If `kinds` is empty.
pub fn choose_codecs(samples: &[Vec<Entry>], kinds: &[CodecKind], threshold: f64) -> Vec<Codec> {
    let all: Vec<Entry> = samples.concat();
    best_codecs(samples, kinds, |kind| kind.train(&all), threshold, 1.0)
}

/// What a codec would take of an allocation.
struct Judged {
    codec: Codec,
    score: Score,
    /// Device memory with targets by page, for all snapshots and by snapshot.
    constant: f64,
    over_time: f64,
}

/// [`choose_codecs`] with codecs that are made ready otherwise, for an allocation of which the samples are one part in `scale`: what a
/// codec keeps beside the entries it keeps once.
pub(crate) fn best_codecs(
    samples: &[Vec<Entry>],
    kinds: &[CodecKind],
    ready: impl Fn(&CodecKind) -> Codec + Sync,
    threshold: f64,
    scale: f64,
) -> Vec<Codec> {
    assert!(!kinds.is_empty(), "there must be a codec to choose");
    let judge = |kind: &CodecKind| {
        let codec = ready(kind);
        let parameter_bytes = codec.parameter_bytes() as f64 / scale;
        let estimate = Estimate::new(samples, &codec);
        let (constant, over_time) = estimate.device(threshold);
        let score = Score::of(&estimate.histograms(), parameter_bytes as u64, threshold);
        Judged { codec, score, constant: constant + parameter_bytes, over_time: over_time + parameter_bytes }
    };
    let judged: Vec<Judged> = kinds.par_iter().map(judge).collect();
    let by_pages = |device: fn(&Judged) -> f64| {
        let less = |one: &&Judged, other: &&Judged| {
            device(one).total_cmp(&device(other)).then(one.score.2.cmp(&other.score.2))
        };
        judged.iter().min_by(less)
    };
    let best = judged.iter().min_by_key(|one| one.score);
    let fewest = judged.iter().min_by_key(|one| one.score.2);
    let found = [best, by_pages(|one| one.constant), by_pages(|one| one.over_time), fewest];
    let mut codecs: Vec<Codec> = Vec::new();
    for Judged { codec, .. } in found.into_iter().flatten() {
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
    fn a_codec_comes_out_even_of_nothing() {
        for sample in [vec![], vec![ZERO_ENTRY]] {
            assert_eq!(choose_codec(&[sample], &candidates(), 0.3).kind(), CodecKind::Bpc);
        }
        assert_eq!(choose_codec(&[], &candidates(), 0.3).kind(), CodecKind::Bpc);
        assert!(candidates().contains(&CodecKind::Bpc));
    }
}
