//! Contents of the terminal text and page of a profile.

use buddy_core::{Dtype, PageMap, PhaseChange, PhasePlan, PhaseSnapshot, Target, TargetRange, Targets};
use buddy_record::{
    AllocationInfo, AllocationProfile, CodecOutcome, CurvePoint, LinkAdvice, LinkCost, PlanOutcome, Policy,
    Record, RunInfo, SnapshotInfo, SweepPoint, TARGETS_VERSION, TargetTable, Verification,
};

use super::*;
use crate::{SortBy, View};

fn histogram(classes: [u64; 6]) -> Histogram {
    let sizes = Histogram { classes, optimistic_bytes: 0 };
    Histogram { optimistic_bytes: sizes.stored_bytes(), ..sizes }
}

fn profile() -> Profile {
    let info = |name: &str| AllocationInfo {
        name: name.to_owned(),
        call_site: "main.c:1".to_owned(),
        base: 0,
        bytes: 100 * 128,
        dtype: Dtype::F64,
    };
    let mut run = RunInfo::new("demo", Default::default(), vec![info("<u>"), info("v")]);
    run.snapshots = [0, 10].map(|step| SnapshotInfo { step, label: String::new(), file: None }).to_vec();
    let one = |classes: [[u64; 6]; 2], overflowing: [u64; 2], device_bytes| AllocationProfile {
        histograms: [("bpc".to_owned(), classes.map(histogram).to_vec())].into(),
        candidates: [("bpc".to_owned(), 0)].into(),
        auto: "bpc".to_owned(),
        overflowing: overflowing.to_vec(),
        device_bytes,
        learned: String::new(),
        pages: PageMap::from_digits(2, &["0".repeat(64), "3".repeat(36)]).ok(),
        pages_codec: "bpc".to_owned(),
        link: None,
    };
    let row = |name: &str, target| AllocationTarget {
        name: name.to_owned(),
        call_site: "main.c:1".to_owned(),
        bytes: 100 * 128,
        codec: "bpc".to_owned(),
        parameters: Default::default(),
        targets: Targets::Uniform(target),
    };
    let outcome = |policy, ratio, mean_overflow| PolicyOutcome {
        policy,
        codec: "bpc".to_owned(),
        device_bytes: (25_600.0 / ratio) as u64,
        ratio,
        overflow: vec![0.0, 2.0 * mean_overflow],
        mean_overflow,
        worst_overflow: 2.0 * mean_overflow,
        ranges: 2,
        link: None,
    };
    Profile {
        run,
        threshold: 0.3,
        allocations: vec![
            one([[100, 0, 0, 0, 0, 0], [0, 0, 0, 80, 0, 20]], [0, 20], 6400),
            one([[0, 0, 0, 0, 0, 100]; 2], [0, 0], 12_800),
        ],
        optimistic: vec![None, Some(1.3)],
        optimistic_ratio: Some(1.9),
        best_ratio: Some(1.4),
        policies: vec![outcome(Policy::Naive, 1.0, 0.0), outcome(Policy::Allocation16x, 4.0 / 3.0, 0.05)],
        sweep: vec![SweepPoint {
            codec: "bpc".to_owned(),
            threshold: 0.3,
            ratio: 4.0 / 3.0,
            mean_overflow: 0.05,
        }],
        codecs: vec![CodecOutcome {
            codec: "bpc".to_owned(),
            optimistic_ratio: None,
            ratio: 4.0 / 3.0,
            mean_overflow: 0.05,
        }],
        policy: Policy::Allocation16x,
        codec: "bpc".to_owned(),
        targets: TargetTable {
            version: TARGETS_VERSION,
            program: "demo".to_owned(),
            allocations: vec![row("<u>", Target::X2), row("v", Target::X1)],
            changes: Vec::new(),
        },
        advice: None,
        plan: None,
        phases: None,
        verified: None,
    }
}

fn plan() -> PlanOutcome {
    PlanOutcome {
        device_memory: 20_000,
        spec: "h200".to_owned(),
        device_gb_per_s: 4800.0,
        link: "pcie5".to_owned(),
        link_gb_per_s: 63.0,
        counted: false,
        device_bytes: 19_328,
        device_seconds: 5.3e-9,
        link_seconds: 0.0,
        bound_seconds: 0.0,
        optimal: true,
        next_bytes: None,
    }
}

#[test]
fn the_table_for_a_terminal() {
    let mut profile = profile();
    profile.verified = Some(Verification {
        snapshot: 1,
        entries: 200,
        overflowing: 20,
        device_sectors: 600,
        buddy_sectors: 40,
    });
    insta::assert_snapshot!(profile_text(&profile, &View::default()));
}

#[test]
fn everything_fits_eighty_columns() {
    let mut profile = profile();
    profile.plan = Some(plan());
    profile.run.allocations[0].name = format!("a.{}.name", "very.long".repeat(10));
    let text = profile_text(&profile, &View { width: Some(80), ..View::default() });
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

/// The page describes targets by phase and compares them with constant targets.
#[test]
fn the_page_has_the_phases() {
    let mut profile = profile();
    let at = |device_bytes, overflowing| PhaseSnapshot { bytes: 25_600, device_bytes, overflowing };
    let range = |pages, target| TargetRange { pages, target };
    let ranges = vec![range(1, Target::X2), range(1, Target::X16)];
    let change = PhaseChange { snapshot: 1, name: "<u>".to_owned(), ranges, bytes_moved: 2048 };
    profile.phases = Some(PhasePlan::new(vec![at(6400, 2), at(12_800, 4)], vec![change]));
    let page = profile_page(&Record::new(profile));
    let said = page.split("<h2>By phase</h2>").nth(1).unwrap().split("</section>").next().unwrap();
    assert!(
        said.contains("2.67x on average over the run, 2.00x where it needs most, 1.5% of entries"),
        "{said}"
    );
    assert!(
        said.contains("one set of targets") && said.contains("&lt;u&gt;") && said.contains("2.0 KiB"),
        "{said}"
    );
    assert!(said.contains("16x 50.0%, 2x 50.0%"), "{said}");
}

#[test]
fn a_plan_does_not_mention_the_threshold() {
    let mut profile = profile();
    profile.plan = Some(PlanOutcome { next_bytes: Some(25_000), link_seconds: 1.0, ..plan() });
    let text = profile_text(&profile, &View::default());
    assert!(text.contains("Targets of the plan for 19.5 KiB") && !text.contains("threshold 30%"), "{text}");
    assert!(text.contains("the 672 B that are left are too few"), "{text}");
    assert!(text.contains("Without a limit of device memory, recommended: policy allocation-16x"), "{text}");
    let page = profile_page(&Record::new(profile));
    let said = page.split("<h2>The plan</h2>").nth(1).unwrap().split("</section>").next().unwrap();
    assert!(
        !said.contains('\\') && said.contains("It takes 18.9 KiB of 19.5 KiB"),
        "no escapes are shown: {said}"
    );
}

#[test]
fn the_best_and_the_papers_design_are_shown() {
    let mut profile = profile();
    let better = PolicyOutcome {
        policy: Policy::Page,
        codec: "auto".to_owned(),
        ratio: 1.6,
        ..profile.policies[1].clone()
    };
    profile.policies.push(better);
    let text = profile_text(&profile, &View::default());
    assert!(text.contains("Recommended: policy page, bpc, the only codec measured: 1.60x"), "{text}");
    let other = profile.allocations[0].histograms["bpc"].clone();
    profile.allocations[0].histograms.insert("planes64".to_owned(), other);
    let text = profile_text(&profile, &View::default());
    assert!(text.contains("Recommended: policy page, the best codec for each: 1.60x"), "{text}");
    assert!(text.contains("Chosen here: policy allocation-16x, bpc: 1.33x"), "{text}");
    (profile.policy, profile.codec) = (Policy::Page, "auto".to_owned());
    let text = profile_text(&profile, &View::default());
    assert!(text.contains("Recommended, and chosen here: policy page"), "{text}");
    assert!(text.contains("The paper's design: policy allocation-16x, bpc: 1.33x"), "{text}");
}

/// Returns the profile with predictions for a link, whose limit one of two outcomes exceeds.
fn with_advice() -> Profile {
    let mut profile = profile();
    let point = |max_slowdown, ratio| CurvePoint { max_slowdown, ratio, slowdown: max_slowdown };
    profile.advice = Some(LinkAdvice {
        spec: "h200".to_owned(),
        device_gb_per_s: 4800.0,
        link: "pcie5".to_owned(),
        link_gb_per_s: 63.0,
        max_slowdown: 0.05,
        counted: false,
        curve: vec![point(0.0, 1.0), point(0.05, 1.1), point(2.0, 1.4)],
    });
    let cost = |slowdown| Some(LinkCost { overflow: 0.1, bytes: 2560, slowdown });
    profile.policies[1].link = cost(2.5);
    profile.allocations[0].link = cost(2.5);
    let within =
        PolicyOutcome { policy: Policy::Link, ratio: 1.1, link: cost(0.04), ..profile.policies[1].clone() };
    profile.policies.push(within);
    profile
}

/// A larger ratio that is too slow is not recommended, and its slowdown is printed.
#[test]
fn nothing_above_the_limit_is_recommended() {
    let mut profile = with_advice();
    let text = profile_text(&profile, &View::default());
    assert!(text.contains("Recommended: policy link, bpc: 1.10x"), "{text}");
    assert!(text.contains("10.0% at worst; 4.0% slower over pcie5."), "{text}");
    assert!(text.contains("Chosen here: policy allocation-16x, bpc: 1.33x"), "{text}");
    assert!(text.contains("; 250% slower over pcie5, above the limit."), "{text}");
    let row = text.lines().find(|line| line.starts_with("<u>")).unwrap();
    assert!(row.contains("2.5 KiB      250%"), "{text}");
    assert!(text.contains("every entry accessed equally often"), "{text}");
    profile.policy = Policy::Link;
    let text = profile_text(&profile, &View::default());
    assert!(text.contains("Recommended, and chosen here: policy link"), "{text}");
    assert!(text.contains("each allocation at most 5% slower on h200 over pcie5, threshold 30%:"), "{text}");
    profile.plan = Some(plan());
    (profile.policy, profile.policies[1].policy) = (Policy::Plan, Policy::Plan);
    let text = profile_text(&profile, &View::default());
    assert!(text.contains("The plan is not recommended: it is predicted to be 250% slower"), "{text}");
}

#[test]
fn the_page_draws_capacity_against_slowdown() {
    let page = profile_page(&Record::new(with_advice()));
    let said =
        page.split("<h2>Capacity against slowdown</h2>").nth(1).unwrap().split("</section>").next().unwrap();
    assert!(said.contains("1.10x at 5%") && !said.contains("1.40x"), "200% is beyond the chart: {said}");
    assert!(page.contains(">250%<"), "{page}");
    assert!(!profile_page(&Record::new(profile())).contains("Capacity against slowdown"));
}

#[test]
fn uncompressed_allocations_name_no_codec() {
    let mut profile = profile();
    profile.targets.allocations[1].targets = Targets::Uniform(Target::Uncompressed);
    let text = profile_text(&profile, &View::default());
    let line = text.lines().find(|line| line.starts_with('v')).unwrap();
    assert!(line.contains(" -  ") && !line.contains("bpc"), "{line}");
}

/// The naive policy may let one allocation overflow entirely, so it is never recommended.
#[test]
fn the_naive_policy_is_never_recommended() {
    let mut profile = profile();
    profile.policies[0].ratio = 4.0;
    assert_eq!(profile.best().unwrap().policy, Policy::Allocation16x);
}

#[test]
fn a_map_names_its_codec() {
    let mut profile = profile();
    profile.targets.allocations[0].codec = "planes64".to_owned();
    profile.targets.allocations[1].codec = "planes64".to_owned();
    profile.allocations[1].pages_codec = "planes64".to_owned();
    let page = profile_page(&Record::new(profile));
    assert!(page.contains("<span>planes64 2x; sizes with bpc</span>"), "{page}");
    assert!(page.contains("<span>planes64 1x</span>"));
}

#[test]
fn csv_has_a_line_per_allocation() {
    let view = View { sort: Some(SortBy::Ratio), top: Some(1), ..View::default() };
    let text = profile_csv(&profile(), &view);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[1], "<u>,main.c:1,f64,12800,bpc,,2x,2,0.1,0.2,6400,,");
    assert_eq!(lines.len(), 2, "{text}");
}

#[test]
fn the_page_has_the_figures_and_the_data_of_the_slider() {
    let record = Record::new(profile());
    let html = profile_page(&record);
    assert!(html.contains(
        "{\"bpc\":[[[0,[[100,0,0,0,0,0],[0,0,0,80,0,20]]]],[[0,[[0,0,0,0,0,100],[0,0,0,0,0,100]]]]],\"auto\":"
    ));
    assert!(html.contains("value=\"30\"") && html.contains("<h2>The threshold</h2>"));
    let (legend, table) =
        (html.rfind("<h2>Every allocation").unwrap(), html.find("<td><span class=\"name\"").unwrap());
    assert!(html[legend..table].contains("class=\"legend\""), "the legend stands before its table");
    assert_eq!(html.matches("<canvas").count(), 2);
    assert_eq!(html.matches("<figure class=\"chart\">").count(), 6);
    assert!(!html.contains("<u>") && html.contains("&lt;u&gt;"), "names are escaped");
    assert!(!html.contains("NaN"));
    assert_eq!(Record::from_json(&record.to_json()).unwrap(), record);
}

#[test]
fn small_shares_keep_significant_digits() {
    let shown = [0.0, 0.3, 0.125, 0.0004, 0.000_002_5, 1.0].map(percent);
    assert_eq!(shown, ["0%", "30%", "12.50%", "0.040%", "0.00025%", "100%"]);
}
