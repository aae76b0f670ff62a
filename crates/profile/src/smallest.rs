//! Chooses the codec and the target of a frozen buffer.

use buddy_codec::{Codec, FrozenHeader};
use buddy_core::{Histogram, Target};

/// Returns the header of the smallest frozen buffer for data whose histograms with some codecs are
/// given. `like` has its size and row; its codec, target and sectors are replaced.
///
/// With a target, only the codec is chosen. Otherwise at most a share `most_overflow` of the entries
/// may overflow: an overflowing entry is slower to read, since its rest is found through an index.
/// Of equal sizes, the fewest sectors and then the first codec win. `None` without a codec, or if
/// each choice overflows 2^32 sectors or more.
pub fn smallest_buffer(
    found: impl IntoIterator<Item = (Codec, Histogram)>,
    like: &FrozenHeader,
    target: Option<Target>,
    most_overflow: f64,
) -> Option<FrozenHeader> {
    let targets: Vec<Target> = target.map_or(Target::ALL.to_vec(), |target| vec![target]);
    let mut best: Option<(u64, FrozenHeader)> = None;
    for (codec, sizes) in found {
        for &at in &targets {
            let Ok(sectors) = u32::try_from(sizes.sectors(at).1) else { continue };
            if target.is_none() && sizes.overflow_share(at) > most_overflow {
                continue;
            }
            let header = FrozenHeader { codec: codec.clone(), target: at, sectors, ..like.clone() };
            let total = header.parts().total;
            if best.as_ref().is_none_or(|(least, best)| (total, sectors) < (*least, best.sectors)) {
                best = Some((total, header));
            }
        }
    }
    best.map(|(_, header)| header)
}

#[cfg(test)]
mod tests {
    use buddy_codec::CodecKind;

    use super::*;

    fn smallest(classes: [[u64; 6]; 2], target: Option<Target>, most_overflow: f64) -> Option<FrozenHeader> {
        let codecs = [CodecKind::Bpc, CodecKind::Zeros16].map(|kind| kind.train(&[]));
        let sizes = classes.map(|classes| Histogram { classes, optimistic_bytes: 0 });
        let bytes = 128 * classes[0].iter().sum::<u64>();
        let like = FrozenHeader { codec: codecs[0].clone(), target: Target::X1, bytes, row: 0, sectors: 0 };
        smallest_buffer(codecs.into_iter().zip(sizes), &like, target, most_overflow)
    }

    /// 6400 entries: with the first codec all need 96 bytes; with the second 5% are raw and the
    /// others need 64.
    const SIZES: [[u64; 6]; 2] = [[0, 0, 0, 0, 6400, 0], [0, 0, 0, 6080, 0, 320]];

    #[test]
    fn overflow_counts_as_bytes_and_is_limited() {
        let chosen = smallest(SIZES, None, 0.1).unwrap();
        assert_eq!(
            (chosen.codec.kind(), chosen.target, chosen.sectors),
            (CodecKind::Zeros16, Target::X2, 640)
        );
        let chosen = smallest(SIZES, None, 0.04).unwrap();
        assert_eq!(
            (chosen.codec.kind(), chosen.target, chosen.sectors),
            (CodecKind::Bpc, Target::X4Over3, 0)
        );
    }

    #[test]
    fn a_given_target_has_no_limit() {
        let chosen = smallest(SIZES, Some(Target::X4), 0.0).unwrap();
        assert_eq!((chosen.codec.kind(), chosen.sectors), (CodecKind::Zeros16, 6080 + 3 * 320));
    }

    #[test]
    fn of_equal_sizes_the_first_codec_wins() {
        let zeros = [6400, 0, 0, 0, 0, 0];
        let chosen = smallest([zeros, zeros], None, 0.1).unwrap();
        assert_eq!((chosen.codec.kind(), chosen.target), (CodecKind::Bpc, Target::X16));
    }

    #[test]
    fn too_many_sectors_are_no_choice() {
        let raw = [0, 0, 0, 0, 0, 1 << 32];
        assert_eq!(smallest([raw, raw], Some(Target::X4), 1.0), None);
    }
}
