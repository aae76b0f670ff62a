//! The profile for a terminal.

use buddy_core::{PhasePlan, visible};
use buddy_record::{PlanOutcome, Policy, PolicyOutcome, Profile};

use super::{link, rows::allocations};
use crate::{
    Cell, Table, View, analysis::left, analysis::right, bytes, count, ratio, share, skipped::skipped_text,
    wrap,
};

/// Renders the measurements, the result of each policy, and the chosen targets.
pub fn profile_text(profile: &Profile, view: &View) -> String {
    let mut text = wrap(&head(profile), view.width);
    text.push_str(&policies(profile).to_text_within(view.width, &["ranges", "over link"]));
    if let Some(advice) = &profile.advice {
        text.push_str(&wrap(&format!("{}\n", link::model_text(advice)), view.width));
    }
    if view.codecs && profile.codecs.len() > 2 {
        text.push('\n');
        text.push_str(&codecs(profile).to_text_within(view.width, &[]));
    }
    let mut said = vec![recommendation(profile)];
    if !profile.policies.iter().any(|one| one.policy == Policy::Page) {
        said.push("Targets by page are not there: they need the sizes of all pages, which this record does not have.\n".to_owned());
    }
    said.push(format!("\n{}\n", chosen_text(profile)));
    text.push_str(&wrap(&said.concat(), view.width));
    text.push_str(&allocations(profile, view));
    text.push_str(&wrap(&foot(profile), view.width));
    text
}

fn head(profile: &Profile) -> String {
    let run = &profile.run;
    let over_time = match run.snapshots.len() {
        1 => String::new(),
        _ => format!(
            ", from {} to {} over the run",
            or_zeros(profile.optimistic.first().copied().flatten()),
            or_zeros(profile.optimistic.last().copied().flatten())
        ),
    };
    format!(
        "{}: {} in {}, {}. With the paper's BPC: optimistic {}{over_time}; each entry at its own class, at worst, {}.\n\n",
        visible(&run.program),
        bytes(run.bytes()),
        many(run.allocations.len(), "allocation"),
        many(run.snapshots.len(), "snapshot"),
        or_zeros(profile.optimistic_ratio),
        or_zeros(profile.best_ratio),
    )
}

/// Formats a count with its noun.
pub(super) fn many(n: usize, what: &str) -> String {
    format!("{} {what}{}", count(n as u64), if n == 1 { "" } else { "s" })
}

/// Returns the text below the table of allocations.
fn foot(profile: &Profile) -> String {
    let mut text = String::new();
    if let Some(phases) = profile.phases.as_ref().filter(|phases| !phases.changes.is_empty()) {
        text.push_str(&phases_text(phases));
    }
    if let Some(plan) = &profile.plan {
        text.push_str(&format!("\n{}\n", plan_text(plan)));
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
    text + &skipped_text(&profile.run.skipped)
}

/// Returns the best measured outcome, the chosen one if different, and the paper's.
pub(super) fn recommendation(profile: &Profile) -> String {
    let Some(best) = profile.best() else { return String::new() };
    let of = |one: &PolicyOutcome| outcome_text(profile, one);
    let chosen = super::chosen(profile).filter(|_| profile.plan.is_none());
    let mut text = match chosen {
        Some(chosen) if super::is_recommended(profile) => {
            format!("\nRecommended, and chosen here: {}.\n", of(chosen))
        }
        Some(chosen) => format!("\nRecommended: {}.\nChosen here: {}.\n", of(best), of(chosen)),
        None => format!("\nWithout a limit of device memory, recommended: {}.\n", of(best)),
    };
    let plan = profile.policies.iter().find(|one| one.policy == Policy::Plan);
    text.push_str(&plan.map_or_else(String::new, |plan| link::refusal(profile, plan)));
    let is =
        |one: &PolicyOutcome, other: &PolicyOutcome| (one.policy, &one.codec) == (other.policy, &other.codec);
    let shown = |one: &PolicyOutcome| is(one, best) || chosen.is_some_and(|chosen| is(one, chosen));
    if let Some(paper) = profile.outcome(Policy::Allocation16x, "bpc").filter(|paper| !shown(paper)) {
        text.push_str(&format!("The paper's design: {}.\n", of(paper)));
    }
    text
}

fn outcome_text(profile: &Profile, one: &PolicyOutcome) -> String {
    let codec = match (one.codec.as_str(), only_codec(profile)) {
        ("auto", None) => "the best codec for each".to_owned(),
        ("auto", Some(only)) => format!("{only}, the only codec measured"),
        (codec, _) => codec.to_owned(),
    };
    let saved = super::footprint(profile, one).saturating_sub(one.device_bytes);
    let overflow = match one.worst_overflow {
        0.0 => "nothing overflows".to_owned(),
        worst => format!("{} of entries overflow, {} at worst", share(one.mean_overflow), share(worst)),
    };
    let slower = link::outcome_text(profile, one);
    format!(
        "policy {}, {codec}: {}, {} saved; {overflow}{slower}",
        one.policy,
        ratio(one.ratio),
        bytes(saved)
    )
}

/// Returns the codec if every allocation was measured with the same one only, as in old records.
fn only_codec(profile: &Profile) -> Option<&str> {
    let mut codecs = profile.allocations.iter().flat_map(|one| one.histograms.keys());
    let first = codecs.next()?;
    codecs.all(|codec| codec == first).then_some(first)
}

/// Describes how the targets of the table were chosen.
pub(super) fn chosen_text(profile: &Profile) -> String {
    match &profile.plan {
        Some(plan) => format!(
            "Targets of the plan for {}: any codec and target that fits. The threshold does not bind it; what overflows costs link \
             time, which is counted.",
            bytes(plan.device_memory)
        ),
        None => format!(
            "Targets by policy {}, codec {}, {}threshold {}:",
            profile.policy,
            profile.codec,
            limit_text(profile),
            super::percent(profile.threshold)
        ),
    }
}

/// Returns the limit of slowdown if it binds the targets.
fn limit_text(profile: &Profile) -> String {
    let advice = profile.advice.as_ref().filter(|_| profile.policy == Policy::Link);
    advice.map_or_else(String::new, |advice| {
        let limit = super::percent(advice.max_slowdown);
        format!("each allocation at most {limit} slower on {} over {}, ", advice.spec, advice.link)
    })
}

/// Describes the result of targets by phase.
pub(super) fn phases_text(phases: &PhasePlan) -> String {
    format!(
        "\nWith targets by phase: {} on average over the run, {} where it needs most, {}; {} of targets {} {} in all.\n",
        ratio(phases.average_ratio),
        ratio(phases.peak_ratio),
        if phases.mean_overflow == 0.0 {
            "nothing overflows".to_owned()
        } else {
            format!("{} of entries overflow", share(phases.mean_overflow))
        },
        if phases.changes.len() == 1 {
            "1 change".to_owned()
        } else {
            format!("{} changes", phases.changes.len())
        },
        if phases.changes.len() == 1 { "copies" } else { "copy" },
        bytes(phases.bytes_moved)
    )
}

fn or_zeros(value: Option<f64>) -> String {
    value.map_or_else(|| "all zeros".to_owned(), ratio)
}

/// Returns a row per policy and codec.
pub(super) fn policies(profile: &Profile) -> Table {
    let columns = vec![
        left("policy", ""),
        left("codec", ""),
        right("device memory", ""),
        right("ratio", ""),
        right("overflow", ""),
        right("at worst", ""),
        right("over link", ""),
        right("slowdown", ""),
        right("ranges", ""),
    ];
    let row = |one: &PolicyOutcome| {
        let [over_link, slowdown] = link::cells(one.link);
        vec![
            Cell::text(one.policy.name()),
            Cell::text(&one.codec),
            Cell::number(one.device_bytes as f64, bytes(one.device_bytes)),
            Cell::number(one.ratio, ratio(one.ratio)),
            Cell::number(one.mean_overflow, share(one.mean_overflow)),
            Cell::number(one.worst_overflow, share(one.worst_overflow)),
            over_link,
            slowdown,
            Cell::number(one.ranges as f64, count(one.ranges)),
        ]
    };
    let rows = profile.policies.iter().map(row).collect();
    Table { columns, rows, total: Vec::new() }.without_empty(&["over link", "slowdown"])
}

/// Returns a row per codec.
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

/// Describes the cost of the plan.
pub(super) fn plan_text(plan: &PlanOutcome) -> String {
    let accesses = if plan.counted { "the counted accesses" } else { "one pass over everything" };
    let proof = match plan.optimal {
        true => "no plan loses less".to_owned(),
        false => format!("no plan loses less than {}", seconds(plan.bound_seconds)),
    };
    format!(
        "It takes {} of {} with its metadata{}. On {}, {accesses}: {} of device time at {:.0} GB/s, {} of link time at {:.0} \
         GB/s ({}); {proof}.",
        bytes(plan.device_bytes),
        bytes(plan.device_memory),
        unused_text(plan),
        plan.spec,
        seconds(plan.device_seconds),
        plan.device_gb_per_s,
        seconds(plan.link_seconds),
        plan.link_gb_per_s,
        plan.link,
    )
}

/// Explains unused memory of a plan.
fn unused_text(plan: &PlanOutcome) -> String {
    let unused = plan.device_memory.saturating_sub(plan.device_bytes);
    match plan.next_bytes {
        Some(next) if unused > 0 => format!(
            "; the {} that are left are too few for the next larger target of any allocation, with which it would take {} at least",
            bytes(unused),
            bytes(next)
        ),
        _ => String::new(),
    }
}

fn seconds(seconds: f64) -> String {
    match seconds {
        0.0 => "0 s".to_owned(),
        s if s < 1e-6 => format!("{:.1} ns", s * 1e9),
        s if s < 1e-3 => format!("{:.1} us", s * 1e6),
        s if s < 1.0 => format!("{:.2} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}
