//! Targets by phase on the page: their effect at every snapshot compared with constant targets, and
//! the changes.

use buddy_core::{ENTRY_BYTES, Histogram, PhaseChange, PhasePlan, PhaseSnapshot, Target, TargetRange};
use buddy_record::Profile;

use super::{
    histograms,
    page::{RATIO, STEPS, steps},
    percent, text,
};
use crate::{Axis, Cell, Line, Table, analysis::left, analysis::right, bytes, line_chart};

/// Maximum number of changes in the table.
const MOST_CHANGES: usize = 200;

/// Describes a plan with changes, with its charts and table.
pub(super) fn phases(profile: &Profile) -> Option<(String, String)> {
    let plan = profile.phases.as_ref().filter(|plan| !plan.changes.is_empty())?;
    let mut said = text::phases_text(plan).trim().to_owned();
    if plan.changes.len() > MOST_CHANGES {
        said += &format!(" The table has the first {MOST_CHANGES}; the file of targets has all.");
    }
    let charts =
        format!("<div class=\"charts\">{}{}</div>\n", ratios(profile, plan), overflow(profile, plan));
    Some((said, charts + &changes(profile, plan).to_html()))
}

/// Draws data over device memory at every snapshot.
fn ratios(profile: &Profile, plan: &PhasePlan) -> String {
    let ratio = |bytes: u64, device: u64| bytes as f64 / device.max(1) as f64;
    let by_phase = plan.snapshots.iter().map(|one| ratio(one.bytes, one.device_bytes));
    let constant = (0..plan.snapshots.len()).map(|snapshot| {
        let alive = (0..profile.allocations.len()).filter_map(|index| {
            let codec = &profile.targets.allocations[index].codec;
            let entries = histograms(profile, index, codec).get(snapshot).map_or(0, Histogram::entries);
            let bytes = entries * ENTRY_BYTES as u64;
            (bytes > 0).then_some((bytes, profile.allocations[index].device_bytes))
        });
        let (all, device) = alive.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        ratio(all, device)
    });
    let lines = [
        Line { name: "one set of targets".to_owned(), points: steps(profile).zip(constant).collect() },
        Line { name: "by phase".to_owned(), points: steps(profile).zip(by_phase).collect() },
    ];
    line_chart(&lines, STEPS, RATIO, (1.0, 1.2))
}

/// Draws the share of entries that overflow at every snapshot.
fn overflow(profile: &Profile, plan: &PhasePlan) -> String {
    let share = |one: &PhaseSnapshot| one.overflowing as f64 / (one.bytes / ENTRY_BYTES as u64).max(1) as f64;
    let points = steps(profile).zip(plan.snapshots.iter().map(share)).collect();
    let line = Line { name: "by phase".to_owned(), points };
    line_chart(&[line], STEPS, Axis { name: "Entries in buddy memory", format: percent }, (0.0, 0.01))
}

fn changes(profile: &Profile, plan: &PhasePlan) -> Table {
    let columns = vec![
        right("from snapshot", ""),
        right("step", ""),
        left("allocation", ""),
        left("share of its pages at each target", ""),
        right("copied at most", ""),
    ];
    let row = |change: &PhaseChange| {
        let step = profile.run.snapshots.get(change.snapshot).map_or(0, |snapshot| snapshot.step);
        vec![
            Cell::number(change.snapshot as f64, change.snapshot.to_string()),
            Cell::number(step as f64, step.to_string()),
            Cell::text(&change.name),
            Cell::text(shares(&change.ranges)),
            Cell::number(change.bytes_moved as f64, bytes(change.bytes_moved)),
        ]
    };
    let rows = plan.changes.iter().take(MOST_CHANGES).map(row).collect();
    Table { columns, rows, total: Vec::new() }
}

/// Returns the share of pages at each target.
fn shares(ranges: &[TargetRange]) -> String {
    let all: u64 = ranges.iter().map(|range| range.pages).sum();
    let mut targets: Vec<Target> = Vec::new();
    for range in ranges {
        if !targets.contains(&range.target) {
            targets.push(range.target);
        }
    }
    if let [target] = targets[..] {
        return target.to_string();
    }
    targets.sort_by_key(|target| target.device_bytes());
    let share = |target: &Target| {
        let pages: u64 = ranges.iter().filter(|range| range.target == *target).map(|range| range.pages).sum();
        format!("{target} {}", crate::share(pages as f64 / all.max(1) as f64))
    };
    targets.iter().map(share).collect::<Vec<_>>().join(", ")
}
