//! The schedule of snapshots.

use super::spacing::Spacing;

/// Returns the ticks of the snapshots kept from a run of `ticks` ticks.
fn kept(ticks: u64, every: u64, limited: bool) -> Vec<u64> {
    let mut spacing = Spacing::new(every, limited);
    let mut kept = Vec::new();
    for tick in 1..=ticks {
        if tick >= spacing.next() {
            kept.push(tick);
            if spacing.taken(tick) {
                kept = kept.into_iter().skip(1).step_by(2).collect();
            }
        }
    }
    kept
}

#[test]
fn ten_to_nineteen_evenly_spaced_remain_of_any_run() {
    for ticks in (10..400).chain([1000, 12_345, 1_000_000]) {
        let kept = kept(ticks, 1, true);
        assert!((10..20).contains(&kept.len()), "{} of {ticks}", kept.len());
        let distance = kept[1] - kept[0];
        assert_eq!(kept[0], distance);
        assert!(kept.windows(2).all(|pair| pair[1] - pair[0] == distance), "{kept:?}");
        assert!(ticks - kept[kept.len() - 1] < distance, "the end is seen");
    }
}

#[test]
fn a_short_run_is_seen_at_every_launch() {
    assert_eq!(kept(3, 1, true), [1, 2, 3]);
    assert_eq!(kept(7, 3, true), [3, 6]);
}

#[test]
fn an_unlimited_schedule_keeps_every_snapshot() {
    assert_eq!(kept(50, 1, false).len(), 50);
}

#[test]
fn a_late_snapshot_does_not_move_the_next() {
    let mut spacing = Spacing::new(10, true);
    spacing.taken(17);
    assert_eq!(spacing.next(), 20);
}
