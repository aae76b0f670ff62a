//! The profile as a page.

use buddy_record::{Policy, PolicyOutcome, Profile, Record};

use super::{
    chosen, histograms, link, overflow, percent, phases::phases, ratio_of, slider::slider, target_text, text,
};
use crate::{
    Axis, Card, Cell, Line, Page, Series, Table, analysis::left, analysis::right, analysis::saved, bar_chart,
    bytes, cards, class_bar, class_legend, count, heat_map, line_chart, ratio, share, skipped::skipped_html,
};

/// Heat maps shown at once; the rest are folded.
const OPEN_MAPS: usize = 12;

const TIME_REMARK: &str = "The optimistic ratio assumes that every entry can have the best of the paper's eight \
    sizes. Entries in buddy memory are those that do not fit their targets, which stay constant over the run.";
const POLICY_REMARK: &str = "Naive is one target for the whole program, allocation one for each allocation up to 4x, \
    allocation-16x adds 16x for mostly-zero allocations, page chooses one per range of pages, 16x where most entries \
    fit 8 bytes, link does so within the limit of predicted slowdown. \
    A target must be within the threshold in every snapshot.";
const THRESHOLD_REMARK: &str = "The share of an allocation's entries that may overflow. Move the slider: the page \
    chooses the targets again, from the histograms of every snapshot, with the policy allocation-16x. Auto is the best \
    of the codecs that were measured here; at another threshold the command may measure others.";
const TABLE_REMARK: &str = "Sizes are those of an allocation's last snapshot, with the chosen codec. \
    Overflow is the share of entries that need buddy memory: the mean over its snapshots, and the worst. \
    Click a column to sort.";
const MAPS_REMARK: &str = "The last snapshot with sampled pages, with the codec named. Each line is a page of 64 \
    entries; pages run downwards in address order. \
    Point at a map to read it.";

/// Renders the page: summary, charts, the slider, a table, heat maps.
pub fn profile_page(record: &Record<Profile>) -> String {
    let profile = &record.data;
    let run = &profile.run;
    let lead = format!(
        "{}: {} in {}, {}",
        run.program,
        bytes(run.bytes()),
        text::many(run.allocations.len(), "allocation"),
        text::many(run.snapshots.len(), "snapshot")
    );
    let mut page = Page::new("What does its memory allow?", &lead).section("", "", &summary(profile));
    if let Some(plan) = &profile.plan {
        page = page.section("The plan", &text::plan_text(plan), "");
    }
    if let Some(advice) = &profile.advice {
        let chart = pair(&[link::chart(profile, advice)]);
        page = page.section("Capacity against slowdown", &link::model_text(advice), &chart);
    }
    if run.snapshots.len() > 1 {
        page = page.section("Over time", TIME_REMARK, &pair(&[optimistic(profile), accesses(profile)]));
    }
    page = page
        .section(
            "Policies",
            POLICY_REMARK,
            &(pair(&policy_bars(profile)) + &text::policies(profile).to_html()),
        )
        .section("The threshold", THRESHOLD_REMARK, &(slider(profile) + &pair(&sweep(profile))));
    if let Some((said, charts)) = phases(profile) {
        page = page.section("By phase", &said, &charts);
    }
    if profile.codecs.len() > 2 {
        page = page.section("Codecs", "Each codec for all allocations.", &text::codecs(profile).to_html());
    }
    let chosen = format!("{} {TABLE_REMARK}", text::chosen_text(profile).replace("%:", "%."));
    page = page.section("Every allocation", &chosen, &(class_legend() + &table(profile).to_html())).section(
        "Where it compresses",
        MAPS_REMARK,
        &maps(profile),
    );
    if let Some(skipped) = skipped_html(&run.skipped) {
        page = page.section("Skipped", "", &skipped);
    }
    page.data("profile.json", &record.to_json()).render(&record.tool)
}

fn pair(charts: &[String]) -> String {
    format!("<div class=\"charts\">{}</div>\n", charts.concat())
}

fn summary(profile: &Profile) -> String {
    let card = |name: &str, value: String, remark: String| Card { name: name.to_owned(), value, remark };
    let optimistic = profile.optimistic_ratio.map_or_else(|| "all zeros".to_owned(), ratio);
    let mut all = vec![card(
        "Optimistic",
        optimistic,
        "the paper's BPC, eight sizes, all snapshots together".to_owned(),
    )];
    let by = |one: &PolicyOutcome| format!("policy {}, codec {}", one.policy, one.codec);
    if let Some(paper) = profile.outcome(Policy::Allocation16x, "bpc") {
        all.push(card("The paper's design", ratio(paper.ratio), by(paper)));
    }
    let recommended = super::is_recommended(profile);
    if let Some(best) = profile.best().filter(|_| !recommended) {
        all.push(card("Recommended", ratio(best.ratio), by(best)));
    }
    if let Some(found) = chosen(profile) {
        all.push(card(if recommended { "Recommended" } else { "Chosen" }, ratio(found.ratio), by(found)));
        let size = super::footprint(profile, found);
        let remark = format!("of {}; {} in device memory", bytes(size), bytes(found.device_bytes));
        all.push(card("Saved", saved(size, found.device_bytes), remark));
        let remark = format!("of entries; {} at worst", share(found.worst_overflow));
        all.push(card("Overflow", share(found.mean_overflow), remark));
        if let (Some(cost), Some(advice)) = (found.link, &profile.advice) {
            let remark = format!("predicted over {}; {} per pass", advice.link, bytes(cost.bytes));
            all.push(card("Slowdown", link::slowdown(cost.slowdown), remark));
        }
    }
    cards(&all)
}

pub(super) const STEPS: Axis = Axis { name: "step", format: |step| format!("{step:.0}") };
pub(super) const RATIO: Axis = Axis { name: "Ratio", format: |ratio| format!("{ratio:.2}x") };

pub(super) fn steps(profile: &Profile) -> impl Iterator<Item = f64> {
    profile.run.snapshots.iter().map(|snapshot| snapshot.step as f64)
}

fn optimistic(profile: &Profile) -> String {
    let points = steps(profile).zip(&profile.optimistic).filter_map(|(step, ratio)| Some((step, (*ratio)?)));
    let line = Line { name: "optimistic".to_owned(), points: points.collect() };
    line_chart(&[line], STEPS, Axis { name: "Optimistic ratio, BPC", ..RATIO }, (1.0, 1.2))
}

/// Draws the overflow of the naive policy and of the chosen one.
fn accesses(profile: &Profile) -> String {
    let naive = profile.policies.iter().find(|one| one.policy == Policy::Naive);
    let line = |one: &PolicyOutcome| Line {
        name: format!("{}, {}", one.policy, one.codec),
        points: steps(profile).zip(one.overflow.iter().copied()).collect(),
    };
    let lines: Vec<Line> = naive.into_iter().chain(chosen(profile)).map(line).collect();
    line_chart(&lines, STEPS, Axis { name: "Entries in buddy memory", format: percent }, (0.0, 0.01))
}

/// Draws ratio and overflow of every policy.
fn policy_bars(profile: &Profile) -> [String; 2] {
    let mut policies: Vec<&str> = profile.policies.iter().map(|one| one.policy.name()).collect();
    policies.sort_by_key(|name| Policy::ALL.iter().position(|policy| policy.name() == *name));
    policies.dedup();
    let mut codecs: Vec<&str> = Vec::new();
    for one in &profile.policies {
        if !codecs.contains(&one.codec.as_str()) {
            codecs.push(&one.codec);
        }
    }
    let series = |value: fn(&PolicyOutcome) -> f64| -> Vec<Series> {
        let of = |codec: &str, policy: &&str| {
            let found =
                profile.policies.iter().find(|one| one.codec == codec && one.policy.name() == *policy);
            found.map_or(0.0, value)
        };
        let one = |codec: &&str| Series {
            name: (*codec).to_owned(),
            values: policies.iter().map(|policy| of(codec, policy)).collect(),
        };
        codecs.iter().map(one).collect()
    };
    [
        bar_chart(&policies, &series(|one| one.ratio), RATIO),
        bar_chart(
            &policies,
            &series(|one| one.mean_overflow),
            Axis { name: "Entries in buddy memory", format: percent },
        ),
    ]
}

fn sweep(profile: &Profile) -> [String; 2] {
    let x = Axis { name: "threshold", format: percent };
    let mut codecs: Vec<&str> = profile.sweep.iter().map(|point| point.codec.as_str()).collect();
    codecs.dedup();
    let line = |codec: &&str, value: fn(&buddy_record::SweepPoint) -> f64| Line {
        name: (*codec).to_owned(),
        points: profile
            .sweep
            .iter()
            .filter(|point| point.codec == **codec)
            .map(|point| (point.threshold, value(point)))
            .collect(),
    };
    let mut ratios: Vec<Line> = codecs.iter().map(|codec| line(codec, |point| point.ratio)).collect();
    if let (Some(best), Some(first), Some(last)) = (
        profile.best_ratio,
        profile.sweep.first(),
        profile.sweep.iter().map(|p| p.threshold).reduce(f64::max),
    ) {
        let points = vec![(first.threshold, best), (last, best)];
        ratios.push(Line { name: "each entry at its own class".to_owned(), points });
    }
    let shares: Vec<Line> = codecs.iter().map(|codec| line(codec, |point| point.mean_overflow)).collect();
    [
        line_chart(&ratios, x, RATIO, (1.0, 1.2)),
        line_chart(&shares, x, Axis { name: "Entries in buddy memory", format: percent }, (0.0, 0.01)),
    ]
}

fn table(profile: &Profile) -> Table {
    let columns = vec![
        left("allocation", ""),
        left("call site", ""),
        left("type", ""),
        right("size", ""),
        left("codec", ""),
        left("sizes", ""),
        right("target", ""),
        right("ratio", ""),
        right("overflow", ""),
        right("at worst", ""),
        right("over link", ""),
        right("slowdown", ""),
        right("saved", ""),
    ];
    let row = |index: usize| {
        let (info, target) = (&profile.run.allocations[index], &profile.targets.allocations[index]);
        let (mean, worst) = overflow(profile, index);
        let alive = histograms(profile, index, &target.codec).iter().rev().find(|one| one.entries() > 0);
        let last = alive.copied().unwrap_or_default();
        let ratio_here = ratio_of(profile, index);
        let [over_link, slowdown] = link::cells(profile.allocations[index].link);
        vec![
            name_cell(&info.name),
            name_cell(&info.call_site),
            Cell::text(info.dtype.name()),
            Cell::number(info.bytes as f64, bytes(info.bytes)),
            Cell::text(codec_cell(profile, index)),
            Cell::number(ratio_here, "").with_html(class_bar(&last)),
            Cell::number(ratio_here, target_text(target)),
            Cell::number(ratio_here, ratio(ratio_here)),
            Cell::number(mean, share(mean)),
            Cell::number(worst, share(worst)),
            over_link,
            slowdown,
            saved_cell(info.bytes, profile.allocations[index].device_bytes),
        ]
    };
    let rows = (0..profile.allocations.len()).map(row).collect();
    Table { columns, rows, total: total(profile).into_iter().collect() }.without_empty(&[
        "call site",
        "over link",
        "slowdown",
    ])
}

fn codec_cell(profile: &Profile, index: usize) -> String {
    match super::codec_text(profile, index) {
        (codec, learned) if learned.is_empty() => codec,
        (codec, learned) => format!("{codec}: {learned}"),
    }
}

/// A name that wraps if needed, with the full name as tooltip.
fn name_cell(name: &str) -> Cell {
    let safe = crate::escape(name);
    Cell::text(name).with_html(format!("<span class=\"name\" title=\"{safe}\">{safe}</span>"))
}

fn saved_cell(all: u64, device_bytes: u64) -> Cell {
    Cell::number(all as f64 - device_bytes as f64, saved(all, device_bytes))
}

fn total(profile: &Profile) -> Option<Vec<Cell>> {
    let all = chosen(profile)?;
    let (size, none) = (profile.run.bytes(), || Cell::text(""));
    let mut cells = vec![
        Cell::text("all"),
        none(),
        none(),
        Cell::number(size as f64, bytes(size)),
        none(),
        none(),
        none(),
    ];
    cells.push(Cell::number(all.ratio, ratio(all.ratio)));
    cells.extend([all.mean_overflow, all.worst_overflow].map(|part| Cell::number(part, share(part))));
    cells.extend(link::cells(all.link));
    cells.push(saved_cell(super::footprint(profile, all), all.device_bytes));
    Some(cells)
}

/// Returns the largest allocations, then the rest folded.
fn maps(profile: &Profile) -> String {
    let mut largest: Vec<usize> =
        (0..profile.allocations.len()).filter(|&index| profile.allocations[index].pages.is_some()).collect();
    if largest.is_empty() {
        return "<p class=\"remark\">The record has no pages.</p>\n".to_owned();
    }
    largest.sort_by_key(|&index| std::cmp::Reverse(profile.run.allocations[index].bytes));
    let map = |&index: &usize| {
        let pages = profile.allocations[index].pages.as_ref();
        let (name, remark) = (&profile.run.allocations[index].name, map_remark(profile, index));
        pages.map(|pages| heat_map(name, &remark, pages)).unwrap_or_default()
    };
    let maps =
        |some: &[usize]| format!("<div class=\"maps\">{}</div>", some.iter().map(map).collect::<String>());
    let (open, folded) = largest.split_at(largest.len().min(OPEN_MAPS));
    let open = class_legend() + &maps(open) + "\n";
    if folded.is_empty() {
        return open;
    }
    let summary = format!("<summary>{} smaller allocations</summary>", count(folded.len() as u64));
    format!("{open}<details>{summary}{}</details>\n", maps(folded))
}

/// Describes a map: codec and target, and the measured codec if it is another.
fn map_remark(profile: &Profile, index: usize) -> String {
    let row = &profile.targets.allocations[index];
    let shown = match profile.allocations[index].pages_codec.as_str() {
        "" => "bpc",
        codec => codec,
    };
    let other = if shown == row.codec { String::new() } else { format!("; sizes with {shown}") };
    format!("{} {}{other}", row.codec, target_text(row))
}
