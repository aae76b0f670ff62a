//! The conservative rule: a target must hold in every snapshot (`docs/explain/deviations.md`, D40
//! and D41).
//!
//! Targets are fixed for a run, so an allocation that starts as zeros and fills up gets the target
//! of its worst snapshot, not of the mean.
//!
//! 1x saves no memory, so it is used only where it saves traffic ([`or_uncompressed`], D78).

use crate::{Histogram, Target};

/// Share of zero entries above which memory counts as mostly zero.
const MOSTLY: f64 = 0.5;
/// Sectors of a metadata line, fetched on a metadata-cache miss.
const METADATA_SECTORS: u64 = 4;
/// Assumed lookups per metadata-cache miss, as for kernels with irregular accesses.
const LOOKUPS_PER_MISS: u64 = 2;

/// Returns the largest share of entries that overflow at this target in any snapshot.
pub fn worst_overflow(snapshots: &[Histogram], target: Target) -> f64 {
    snapshots.iter().map(|histogram| histogram.overflow_share(target)).fold(0.0, f64::max)
}

/// Returns whether more than half of the entries are zero in every non-empty snapshot.
pub fn stays_mostly_zero(snapshots: &[Histogram]) -> bool {
    snapshots.iter().all(|histogram| histogram.entries() == 0 || histogram.zero_share() > MOSTLY)
}

/// Returns whether more than half of the entries fit in 8 bytes in every snapshot: the condition
/// for 16x on pages.
pub fn stays_small(snapshots: &[Histogram]) -> bool {
    let small = |histogram: &Histogram| {
        let over = histogram.overflowing(Target::X16) as f64;
        over < (1.0 - MOSTLY) * histogram.entries() as f64
    };
    snapshots.iter().all(|histogram| histogram.entries() == 0 || small(histogram))
}

/// Returns the largest target up to 4x whose overflow stays within the threshold in every snapshot.
/// With `zeros`, 16x is allowed for memory that stays mostly zero. Memory that is never alive gets
/// 1x.
pub fn conservative_target(snapshots: &[Histogram], threshold: f64, zeros: bool) -> Target {
    if snapshots.iter().all(|histogram| histogram.entries() == 0) {
        return Target::X1;
    }
    let allowed = |target: &Target| *target != Target::X16 || (zeros && stays_mostly_zero(snapshots));
    let within = |target: &Target| worst_overflow(snapshots, *target) <= threshold;
    Target::ALL.into_iter().rev().filter(allowed).find(within).unwrap_or(Target::X1)
}

/// Replaces 1x by [`Target::Uncompressed`] where metadata costs more traffic than small entries
/// save. `entries` sums all snapshots.
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
    fn memory_that_fills_up_gets_the_target_of_its_last_snapshot() {
        let zeros = histogram([100, 0, 0, 0, 0, 0]);
        let full = histogram([0, 0, 10, 60, 20, 10]);
        let run = [[zeros; 9].as_slice(), &[full]].concat();
        assert_eq!(conservative_target(&run, 0.3, true), Target::X2);
        assert_eq!(conservative_target(&run[..9], 0.3, true), Target::X16);
        assert_eq!(conservative_target(&run[..9], 0.3, false), Target::X4);
        assert_eq!(worst_overflow(&run, Target::X2), 0.3);
    }

    #[test]
    fn small_entries_do_not_count_as_zero() {
        let constant = histogram([50, 50, 0, 0, 0, 0]);
        assert_eq!(conservative_target(&[constant], 0.3, true), Target::X4);
        let more = histogram([51, 49, 0, 0, 0, 0]);
        assert_eq!(conservative_target(&[more], 0.3, true), Target::X16);
        assert_eq!(conservative_target(&[more, constant], 0.3, true), Target::X4);
        assert_eq!(conservative_target(&[Histogram::default()], 0.3, true), Target::X1);
        assert_eq!(conservative_target(&[more, Histogram::default()], 0.3, true), Target::X16, "not alive");
    }

    #[test]
    fn pages_that_stay_small_fit_8_bytes() {
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
    fn a_threshold_of_zero_allows_no_overflow_and_of_one_gives_4x() {
        assert_eq!(target([1, 0, 0, 0, 0, 1], 0.0), Target::X1);
        assert_eq!(target([2, 1, 0, 0, 0, 0], 0.0), Target::X16);
        assert_eq!(target([0, 0, 0, 0, 0, 9], 1.0), Target::X4);
        assert_eq!(target([0; 6], 1.0), Target::X1);
    }

    /// Ten entries pay for their metadata if they save two sectors each on average.
    #[test]
    fn savings_below_the_metadata_cost_leave_memory_uncompressed() {
        let plain = |classes| or_uncompressed(Target::X1, &histogram(classes)) == Target::Uncompressed;
        assert!(plain([0, 0, 0, 0, 0, 10]) && plain([0, 0, 0, 9, 0, 1]) && plain([4, 0, 1, 0, 0, 5]));
        assert!(!plain([5, 0, 0, 0, 0, 5]) && !plain([0, 0, 0, 10, 0, 0]), "20 sectors of 40");
        assert!(!plain([0; 6]), "memory that is never alive keeps its target");
        assert_eq!(
            or_uncompressed(Target::X2, &histogram([0, 0, 0, 0, 0, 10])),
            Target::X2,
            "it saves memory"
        );
    }
}
