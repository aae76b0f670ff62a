//! Which target, and which codec.

use buddy_codec::{Codec, CodecKind};
use buddy_core::{Entry, Histogram, SizeClass, Target};
use rayon::prelude::*;

use crate::measure::count;

/// The paper's Buddy Threshold: the share of an allocation's entries that may need buddy memory.
pub const DEFAULT_THRESHOLD: f64 = 0.30;

/// The largest target whose share of overflowing entries is within the threshold.
///
/// 16x follows the same rule: it is chosen where all but the threshold's share of the entries fit 8 bytes, which
/// in practice is the paper's mostly-zero allocation. The paper's further wish, that all targets together stay
/// under 4x, concerns a whole run and is not judged here.
pub fn choose_target(histogram: &Histogram, threshold: f64) -> Target {
    if histogram.entries() == 0 {
        return Target::X1;
    }
    let within = |target: &Target| histogram.overflow_share(*target) <= threshold;
    Target::ALL.into_iter().rev().find(within).unwrap_or(Target::X1)
}

/// The codecs that an allocation may be given: all but those that the paper only compares BPC with.
pub fn candidates() -> Vec<CodecKind> {
    let compared = ["bdi", "fpc", "fvc", "cpack"];
    CodecKind::ALL.into_iter().filter(|kind| !compared.contains(&kind.name())).collect()
}

/// The codec among `kinds` that does best on a sample: the largest target at the threshold, then the fewest
/// entries in buddy memory at it, then the fewest bytes. The first one wins a tie.
///
/// # Panics
/// If `kinds` is empty.
pub fn choose_codec(sample: &[Entry], kinds: &[CodecKind], threshold: f64) -> Codec {
    assert!(!kinds.is_empty(), "there must be a codec to choose");
    let judge = |kind: &CodecKind| {
        let codec = kind.train(sample);
        let histogram = count(sample, std::slice::from_ref(&codec))[0];
        let target = choose_target(&histogram, threshold);
        ((target.device_bytes(), histogram.overflowing(target), stored_bytes(&histogram)), codec)
    };
    let judged: Vec<_> = kinds.par_iter().map(judge).collect();
    let best = judged.into_iter().min_by_key(|(score, _)| *score);
    best.expect("kinds is not empty").1
}

/// Bytes of the entries, each as large as its class.
fn stored_bytes(histogram: &Histogram) -> u64 {
    SizeClass::ALL.into_iter().map(|class| histogram.classes[class.index()] * class.bytes() as u64).sum()
}

#[cfg(test)]
mod tests {
    use buddy_core::ZERO_ENTRY;

    use super::*;

    fn target(classes: [u64; 6], threshold: f64) -> Target {
        choose_target(&Histogram { classes, optimistic_bytes: 0 }, threshold)
    }

    #[test]
    fn the_threshold_is_a_share_of_entries_and_counts_as_within() {
        assert_eq!(target([0, 0, 0, 70, 0, 30], 0.30), Target::X2);
        assert_eq!(target([0, 0, 0, 69, 0, 31], 0.30), Target::X1);
        assert_eq!(target([0, 0, 0, 69, 1, 30], 0.30), Target::X4Over3);
        assert_eq!(target([0, 0, 70, 30, 0, 0], 0.30), Target::X4);
        assert_eq!(target([70, 0, 30, 0, 0, 0], 0.30), Target::X16);
        assert_eq!(target([70, 0, 30, 0, 0, 0], 0.29), Target::X4);
    }

    #[test]
    fn the_ends_of_the_threshold() {
        assert_eq!(target([1, 0, 0, 0, 0, 1], 0.0), Target::X1);
        assert_eq!(target([1, 1, 0, 0, 0, 0], 0.0), Target::X16);
        assert_eq!(target([0, 0, 0, 0, 0, 9], 1.0), Target::X16);
        assert_eq!(target([0; 6], 1.0), Target::X1);
    }

    #[test]
    fn a_codec_comes_out_even_of_nothing() {
        for sample in [&[][..], &[ZERO_ENTRY][..]] {
            assert_eq!(choose_codec(sample, &candidates(), 0.3).kind(), CodecKind::Bpc);
        }
        assert!(candidates().contains(&CodecKind::Bpc));
    }
}
