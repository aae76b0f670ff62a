//! What a reader finds in a profile.

use buddy_core::{
    AllocationInfo, AllocationProfile, CodecOutcome, Dtype, PageMap, PlanOutcome, Policy, Record, RunInfo,
    SnapshotInfo, SweepPoint, TARGETS_VERSION, Target, TargetTable, Targets, Verification,
};

use super::*;

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
        auto: "bpc".to_owned(),
        overflowing: overflowing.to_vec(),
        device_bytes,
        learned: String::new(),
        pages: PageMap::from_digits(2, &["0".repeat(64), "3".repeat(36)]).ok(),
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
        },
        plan: None,
        phases: None,
        verified: None,
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
    profile.plan = Some(PlanOutcome {
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
    });
    insta::assert_snapshot!(profile_text(&profile));
}

#[test]
fn the_page_has_the_figures_and_the_data_of_the_slider() {
    let record = Record::new(profile());
    let html = profile_page(&record);
    assert!(html.contains(
        "{\"bpc\":[[[100,0,0,0,0,0],[0,0,0,80,0,20]],[[0,0,0,0,0,100],[0,0,0,0,0,100]]],\"auto\":"
    ));
    assert!(html.contains("value=\"30\"") && html.contains("<h2>The threshold</h2>"));
    assert_eq!(html.matches("<canvas").count(), 2);
    assert_eq!(html.matches("<figure class=\"chart\">").count(), 6);
    assert!(!html.contains("<u>") && html.contains("&lt;u&gt;"), "names are escaped");
    assert!(!html.contains("NaN"));
    assert_eq!(Record::from_json(&record.to_json()).unwrap(), record);
}
