//! The conservative rule: a target must be good in every snapshot (`docs/explain/deviations.md`, D40 and D41).
//!
//! A run keeps its targets from beginning to end, so an allocation that begins as zeros and fills up gets what its
//! worst snapshot allows, not what the mean would.
//!
//! What stays at 1x saves no memory. It is compressed only where that saves traffic ([`or_uncompressed`], D78).

use crate::{Histogram, Target};

/// The share of zero entries from which on memory counts as mostly zero.
const MOSTLY: f64 = 0.5;
/// Sectors of a line of metadata, which a lookup fetches that misses its cache.
const METADATA_SECTORS: u64 = 4;
/// One lookup in so many is taken to miss, as it is for kernels that do not follow the order of memory.
const LOOKUPS_PER_MISS: u64 = 2;

/// The largest share of entries that need buddy memory at this target in any of the snapshots.
pub fn worst_overflow(snapshots: &[Histogram], target: Target) -> f64 {
    snapshots.iter().map(|histogram| histogram.overflow_share(target)).fold(0.0, f64::max)
}

/// Whether more than half of the entries are zero in every snapshot that has any.
pub fn stays_mostly_zero(snapshots: &[Histogram]) -> bool {
    snapshots.iter().all(|histogram| histogram.entries() == 0 || histogram.zero_share() > MOSTLY)
}

/// Whether in every snapshot more than half of the entries fit 8 bytes, zeros among them: what 16x may hold where it is for
/// pages.
pub fn stays_small(snapshots: &[Histogram]) -> bool {
    let small = |histogram: &Histogram| {
        let over = histogram.overflowing(Target::X16) as f64;
        over < (1.0 - MOSTLY) * histogram.entries() as f64
    };
    snapshots.iter().all(|histogram| histogram.entries() == 0 || small(histogram))
}

/// The largest target up to 4x that leaves no more than the threshold's share of entries to buddy memory in any
/// snapshot; with `zeros` also 16x, where memory stays mostly zero. Memory that is nowhere alive gets 1x.
pub fn conservative_target(snapshots: &[Histogram], threshold: f64, zeros: bool) -> Target {
    if snapshots.iter().all(|histogram| histogram.entries() == 0) {
        return Target::X1;
    }
    let allowed = |target: &Target| *target != Target::X16 || (zeros && stays_mostly_zero(snapshots));
    let within = |target: &Target| worst_overflow(snapshots, *target) <= threshold;
    Target::ALL.into_iter().rev().filter(allowed).find(within).unwrap_or(Target::X1)
}

/// This target, or [`Target::Uncompressed`] in place of 1x where metadata costs more than small entries save. `entries` are
/// those of all snapshots together: a small one saves sectors when it is accessed, and every access needs its metadata.
pub fn or_uncompressed(target: Target, entries: &Histogram) -> Target {
    let saved = entries.sectors(Target::Uncompressed).0 - entries.sectors(Target::X1).0;
    let pays = saved * LOOKUPS_PER_MISS >= entries.entries() * METADATA_SECTORS;
    if target == Target::X1 && !pays { Target::Uncompressed } else { target }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(classes: [u64; 6]) -> Histogram {
        Histogram { classes, optimistic_bytes: 0 }
    }

    #[test]
    fn what_begins_as_zeros_gets_what_its_end_allows() {
        let zeros = histogram([100, 0, 0, 0, 0, 0]);
        let full = histogram([0, 0, 10, 60, 20, 10]);
        let run = [[zeros; 9].as_slice(), &[full]].concat();
        assert_eq!(conservative_target(&run, 0.3, true), Target::X2);
        assert_eq!(conservative_target(&run[..9], 0.3, true), Target::X16);
        assert_eq!(conservative_target(&run[..9], 0.3, false), Target::X4);
        assert_eq!(worst_overflow(&run, Target::X2), 0.3);
    }

    #[test]
    fn small_is_not_zero() {
        let constant = histogram([50, 50, 0, 0, 0, 0]);
        assert_eq!(conservative_target(&[constant], 0.3, true), Target::X4);
        let more = histogram([51, 49, 0, 0, 0, 0]);
        assert_eq!(conservative_target(&[more], 0.3, true), Target::X16);
        assert_eq!(conservative_target(&[more, constant], 0.3, true), Target::X4);
        assert_eq!(conservative_target(&[Histogram::default()], 0.3, true), Target::X1);
        assert_eq!(conservative_target(&[more, Histogram::default()], 0.3, true), Target::X16, "not alive");
    }

    #[test]
    fn most_of_what_stays_small_fits_8_bytes() {
        let [most, half] = [[1, 50, 49, 0, 0, 0], [0, 50, 0, 50, 0, 0]].map(histogram);
        assert!(stays_small(&[most, Histogram::default()]) && !stays_mostly_zero(&[most]));
        assert!(!stays_small(&[half]) && !stays_small(&[most, half]));
    }

    fn target(classes: [u64; 6], threshold: f64) -> Target {
        conservative_target(&[histogram(classes)], threshold, true)
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
        assert_eq!(target([2, 1, 0, 0, 0, 0], 0.0), Target::X16);
        assert_eq!(target([0, 0, 0, 0, 0, 9], 1.0), Target::X4);
        assert_eq!(target([0; 6], 1.0), Target::X1);
    }

    /// Ten entries: at two sectors saved by each on average they are worth their metadata.
    #[test]
    fn what_saves_less_than_half_a_line_of_metadata_is_left_as_it_is() {
        let plain = |classes| or_uncompressed(Target::X1, &histogram(classes)) == Target::Uncompressed;
        assert!(plain([0, 0, 0, 0, 0, 10]) && plain([0, 0, 0, 9, 0, 1]) && plain([4, 0, 1, 0, 0, 5]));
        assert!(!plain([5, 0, 0, 0, 0, 5]) && !plain([0, 0, 0, 10, 0, 0]), "20 sectors of 40");
        assert!(!plain([0; 6]), "where nothing is alive nothing changes");
        assert_eq!(
            or_uncompressed(Target::X2, &histogram([0, 0, 0, 0, 0, 10])),
            Target::X2,
            "it saves memory"
        );
    }
}
