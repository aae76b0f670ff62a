//! Predicted slowdown on the link, in words, columns and a chart.

use buddy_record::{LinkAdvice, LinkCost, Policy, PolicyOutcome, Profile, best_outcome};

use super::page::RATIO;
use crate::{Axis, Cell, Line, bytes, line_chart, share};

/// Largest slowdown on the chart.
const MOST_SLOWDOWN: f64 = 1.0;

/// Formats a predicted slowdown; `-` for none.
pub(super) fn slowdown(slowdown: f64) -> String {
    if slowdown < 1.0 { share(slowdown) } else { format!("{:.0}%", slowdown * 100.0) }
}

/// Returns the bytes over the link and the slowdown as text, empty without a machine.
pub(super) fn texts(link: Option<LinkCost>) -> [String; 2] {
    match link {
        Some(LinkCost { bytes: 0, .. }) => ["-", "-"].map(str::to_owned),
        Some(link) => [bytes(link.bytes), slowdown(link.slowdown)],
        None => [String::new(), String::new()],
    }
}

/// Returns the same as cells, sorted by their numbers.
pub(super) fn cells(link: Option<LinkCost>) -> [Cell; 2] {
    let ([over_link, slowdown], cost) = (texts(link), link.unwrap_or_default());
    [Cell::number(cost.bytes as f64, over_link), Cell::number(cost.slowdown, slowdown)]
}

/// Describes the model of the predictions.
pub(super) fn model_text(advice: &LinkAdvice) -> String {
    let accesses = match advice.counted {
        true => "of the counted accesses",
        false => "of one pass over the data, every entry accessed equally often",
    };
    format!(
        "Over link and slowdown are predicted for {} ({:.0} GB/s) over {} ({} GB/s): {accesses}, in the worst snapshot, for a \
         program that bandwidth or latency limits, whichever costs more.",
        advice.spec, advice.device_gb_per_s, advice.link, advice.link_gb_per_s
    )
}

/// Describes an outcome's slowdown, and whether it exceeds the limit.
pub(super) fn outcome_text(profile: &Profile, one: &PolicyOutcome) -> String {
    let (Some(advice), Some(link)) = (&profile.advice, one.link) else { return String::new() };
    match link.slowdown {
        0.0 => format!("; no slowdown over {}", advice.link),
        more => {
            let above = if more > advice.max_slowdown { ", above the limit" } else { "" };
            format!("; {} slower over {}{above}", slowdown(more), advice.link)
        }
    }
}

/// Says that a plan above the limit is not recommended.
pub(super) fn refusal(profile: &Profile, plan: &PolicyOutcome) -> String {
    let (Some(advice), Some(link)) = (&profile.advice, plan.link) else { return String::new() };
    if link.slowdown <= advice.max_slowdown {
        return String::new();
    }
    format!(
        "The plan is not recommended: it is predicted to be {} slower over {}; the limit is {}.\n",
        slowdown(link.slowdown),
        advice.link,
        super::percent(advice.max_slowdown)
    )
}

/// Draws capacity at every limit of slowdown, beside the best policy by threshold and the paper's.
pub(super) fn chart(profile: &Profile, advice: &LinkAdvice) -> String {
    let shown = advice.curve.iter().filter(|point| point.max_slowdown <= MOST_SLOWDOWN);
    let points = shown.map(|point| (point.max_slowdown, point.ratio)).collect();
    let curve = Line { name: format!("policy link, {}", profile.codec), points };
    let paper = profile.outcome(Policy::Allocation16x, "bpc");
    let best = best_outcome(&profile.policies).filter(|best| Some(*best) != paper);
    let point = |one: &PolicyOutcome| {
        let slowdown = one.link?.slowdown;
        let name = format!("policy {}, {}", one.policy, one.codec);
        (slowdown <= MOST_SLOWDOWN).then(|| Line { name, points: vec![(slowdown, one.ratio)] })
    };
    let lines: Vec<Line> =
        [curve].into_iter().chain(best.into_iter().chain(paper).filter_map(point)).collect();
    let x = Axis { name: "predicted slowdown", format: |slowdown| format!("{:.0}%", 100.0 * slowdown) };
    line_chart(&lines, x, RATIO, (1.0, 1.2))
}
