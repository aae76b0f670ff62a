//! Which codec.

use buddy_codec::{Codec, CodecKind};
use buddy_core::{Entry, Histogram, SizeClass};
use rayon::prelude::*;

use crate::measure::count;

/// The paper's Buddy Threshold: the share of an allocation's entries that may need buddy memory.
pub const DEFAULT_THRESHOLD: f64 = 0.30;

/// The codecs that an allocation may be given: the paper's choice and ours. The others that the paper compares
/// with it are for the comparison only; a GPU would walk them word by word.
pub fn candidates() -> Vec<CodecKind> {
    let eligible = |kind: &CodecKind| *kind == CodecKind::Bpc || !CodecKind::PAPER.contains(kind);
    CodecKind::ALL.into_iter().filter(eligible).collect()
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
        let target = histogram.target_at(threshold);
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

    #[test]
    fn a_codec_comes_out_even_of_nothing() {
        for sample in [&[][..], &[ZERO_ENTRY][..]] {
            assert_eq!(choose_codec(sample, &candidates(), 0.3).kind(), CodecKind::Bpc);
        }
        assert!(candidates().contains(&CodecKind::Bpc));
    }
}
