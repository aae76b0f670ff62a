//! The profile for a terminal.

use buddy_core::{PhasePlan, PlanOutcome, PolicyOutcome, Profile, visible};

use super::{overflow, ratio_of, target_text};
use crate::{Cell, Table, analysis::left, analysis::right, analysis::shorten, bytes, count, ratio, share};

/// Characters of a name.
const NAME_CHARS: usize = 36;
/// Rows that a terminal is given; the record and the page have all of them.
const MOST_ROWS: usize = 40;

/// What was found, what each policy gives, and what was chosen for every allocation.
pub fn profile_text(profile: &Profile) -> String {
    let run = &profile.run;
    let mut text = format!(
        "{}: {} in {} allocations, {} snapshots. Optimistic {}, from {} to {}; each entry at its own class, at worst, {}.\n\n",
        visible(&run.program),
        bytes(run.bytes()),
        count(run.allocations.len() as u64),
        run.snapshots.len(),
        or_zeros(profile.optimistic_ratio),
        or_zeros(profile.optimistic.first().copied().flatten()),
        or_zeros(profile.optimistic.last().copied().flatten()),
        or_zeros(profile.best_ratio),
    );
    text.push_str(&policies(profile).to_text());
    if profile.codecs.len() > 2 {
        text.push('\n');
        text.push_str(&codecs(profile).to_text());
    }
    text.push_str(&format!(
        "\nTargets by policy {}, codec {}, threshold {:.0}%:\n",
        profile.policy,
        profile.codec,
        profile.threshold * 100.0
    ));
    text.push_str(&allocations(profile).to_text());
    let hidden = run.allocations.len().saturating_sub(MOST_ROWS);
    if hidden > 0 {
        text.push_str(&format!("and {} smaller allocations\n", count(hidden as u64)));
    }
    if let Some(phases) = profile.phases.as_ref().filter(|phases| !phases.changes.is_empty()) {
        text.push_str(&phases_text(phases));
    }
    if let Some(plan) = &profile.plan {
        text.push_str(&plan_text(plan));
    }
    if let Some(found) = &profile.verified {
        text.push_str(&format!(
            "\nVerified: snapshot {} was stored and read back bit for bit: {} entries, {} overflowing, {} device and {} \
             buddy sectors, all as predicted.\n",
            found.snapshot,
            count(found.entries),
            count(found.overflowing),
            count(found.device_sectors),
            count(found.buddy_sectors)
        ));
    }
    text
}

/// What targets that follow the program would give.
fn phases_text(phases: &PhasePlan) -> String {
    format!(
        "\nWith targets by phase: {} on average over the run, {} where it needs most, {} of entries overflow; {} changes of \
         targets copy {} in all.\n",
        ratio(phases.average_ratio),
        ratio(phases.peak_ratio),
        share(phases.mean_overflow),
        count(phases.changes.len() as u64),
        bytes(phases.bytes_moved)
    )
}

fn or_zeros(value: Option<f64>) -> String {
    value.map_or_else(|| "all zeros".to_owned(), ratio)
}

/// One row for each policy and codec.
pub(super) fn policies(profile: &Profile) -> Table {
    let columns = vec![
        left("policy", ""),
        left("codec", ""),
        right("device memory", ""),
        right("ratio", ""),
        right("overflow", ""),
        right("at worst", ""),
        right("ranges", ""),
    ];
    let row = |one: &PolicyOutcome| {
        vec![
            Cell::text(one.policy.name()),
            Cell::text(&one.codec),
            Cell::number(one.device_bytes as f64, bytes(one.device_bytes)),
            Cell::number(one.ratio, ratio(one.ratio)),
            Cell::number(one.mean_overflow, share(one.mean_overflow)),
            Cell::number(one.worst_overflow, share(one.worst_overflow)),
            Cell::number(one.ranges as f64, count(one.ranges)),
        ]
    };
    Table { columns, rows: profile.policies.iter().map(row).collect(), total: Vec::new() }
}

/// One row for each codec.
pub(super) fn codecs(profile: &Profile) -> Table {
    let columns = vec![left("codec", ""), right("optimistic", ""), right("ratio", ""), right("overflow", "")];
    let rows = profile.codecs.iter().map(|one| {
        vec![
            Cell::text(&one.codec),
            Cell::number(one.optimistic_ratio.unwrap_or(f64::MAX), or_zeros(one.optimistic_ratio)),
            Cell::number(one.ratio, ratio(one.ratio)),
            Cell::number(one.mean_overflow, share(one.mean_overflow)),
        ]
    });
    Table { columns, rows: rows.collect(), total: Vec::new() }
}

fn allocations(profile: &Profile) -> Table {
    let columns = vec![
        left("allocation", ""),
        left("call site", ""),
        right("size", ""),
        left("codec", ""),
        left("target", ""),
        right("ratio", ""),
        right("overflow", ""),
        right("at worst", ""),
    ];
    let mut largest: Vec<usize> = (0..profile.run.allocations.len()).collect();
    if largest.len() > MOST_ROWS {
        largest.sort_by_key(|&index| std::cmp::Reverse(profile.run.allocations[index].bytes));
        largest.truncate(MOST_ROWS);
    }
    let row = |index: usize| {
        let (info, target) = (&profile.run.allocations[index], &profile.targets.allocations[index]);
        let (mean, worst) = overflow(profile, index);
        vec![
            Cell::text(shorten(&info.name, NAME_CHARS)),
            Cell::text(shorten(&info.call_site, NAME_CHARS)),
            Cell::text(bytes(info.bytes)),
            Cell::text(super::codec_text(profile, index)),
            Cell::text(target_text(target)),
            Cell::text(ratio(ratio_of(profile, index))),
            Cell::text(share(mean)),
            Cell::text(share(worst)),
        ]
    };
    let total = super::chosen(profile).map(|all| {
        let mut cells = vec![Cell::text("all"), Cell::text(""), Cell::text(bytes(profile.run.bytes()))];
        cells.extend([Cell::text(""), Cell::text(""), Cell::text(ratio(all.ratio))]);
        cells.extend([Cell::text(share(all.mean_overflow)), Cell::text(share(all.worst_overflow))]);
        cells
    });
    Table { columns, rows: largest.into_iter().map(row).collect(), total: total.into_iter().collect() }
}

/// What the plan costs.
pub(super) fn plan_text(plan: &PlanOutcome) -> String {
    let accesses = if plan.counted { "the counted accesses" } else { "one pass over everything" };
    let proof = match plan.optimal {
        true => "no plan loses less".to_owned(),
        false => format!("no plan loses less than {}", seconds(plan.bound_seconds)),
    };
    format!(
        "\nIt takes {} of {} with its metadata. On {}, {accesses}: {} of device time at {:.0} GB/s, {} of link time \
         at {:.0} GB/s ({}); {proof}.\n",
        bytes(plan.device_bytes),
        bytes(plan.device_memory),
        plan.spec,
        seconds(plan.device_seconds),
        plan.device_gb_per_s,
        seconds(plan.link_seconds),
        plan.link_gb_per_s,
        plan.link,
    )
}

fn seconds(seconds: f64) -> String {
    match seconds {
        0.0 => "0 s".to_owned(),
        s if s < 1e-3 => format!("{:.1} us", s * 1e6),
        s if s < 1.0 => format!("{:.2} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}
