//! Allocations that are created and freed during a run count only while they are alive.

use buddy_codec::CodecKind;
use buddy_core::{Dtype, Histogram, PageMap, Target};
use buddy_profile::{CodecChoice, Measured, Settings, Tried, profile};
use buddy_record::{AllocationInfo, AllocationSizes, Policy, RunInfo, RunRecord, SnapshotInfo};

const TRIED: Tried = Tried { kinds: Vec::new(), auto: true, threshold: 0.3 };

fn sizes(classes: [u64; 6]) -> AllocationSizes {
    let mut histogram = Histogram { classes, optimistic_bytes: 0 };
    histogram.optimistic_bytes = histogram.stored_bytes();
    let histograms = ["bpc", "zeros32"].map(|codec| (codec.to_owned(), histogram));
    AllocationSizes { histograms: histograms.into(), ..Default::default() }
}

/// Incompressible weights that are always alive, and two activations with disjoint lifetimes.
fn record() -> RunRecord {
    let allocation = |name: &str| AllocationInfo {
        name: name.to_owned(),
        call_site: "main".to_owned(),
        base: 0,
        bytes: 12_800,
        dtype: Dtype::F32,
    };
    let mut run = RunInfo::new("demo", Default::default(), ["w", "a", "b"].map(allocation).into());
    let (raw, half) = (sizes([0, 0, 0, 0, 0, 100]), sizes([60, 0, 0, 30, 0, 10]));
    let gone = AllocationSizes::default();
    for step in 0..3 {
        run.snapshots.push(SnapshotInfo { step, label: String::new(), file: None });
    }
    let mut first = half.clone();
    let row = "0".repeat(60) + "3333";
    first.pages.insert("bpc".to_owned(), PageMap::from_digits(2, &[row]).unwrap());
    let sizes = vec![
        vec![raw.clone(), first, gone.clone()],
        vec![raw.clone(), gone.clone(), half],
        vec![raw, gone.clone(), gone],
    ];
    RunRecord { run, sizes }
}

fn settings() -> Settings {
    Settings {
        threshold: 0.3,
        policy: Policy::Allocation16x,
        codec: CodecChoice::Fixed(CodecKind::Bpc),
        plan: None,
        link: None,
    }
}

#[test]
fn the_ratio_is_that_of_the_peak_footprints() {
    let measured = Measured::from_record(&record(), &TRIED).unwrap();
    let (profile, chosen) = profile(&measured, &settings()).unwrap();
    let targets: Vec<Target> = chosen.iter().map(|one| one.targets.uniform().unwrap()).collect();
    assert_eq!(targets, [Target::Uncompressed, Target::X2, Target::X2]);
    let outcome = profile.outcome(Policy::Allocation16x, "bpc").unwrap();
    assert_eq!(outcome.device_bytes, 100 * (128 + 64));
    assert_eq!(outcome.ratio, 200.0 / 150.0);
    assert_eq!(outcome.overflow, [0.05, 0.05, 0.0]);
    assert_eq!(profile.best_ratio, Some(25_600.0 / f64::from(12_800 + 30 * 64 + 10 * 128)));
}

#[test]
fn page_maps_are_of_the_last_snapshot_that_has_one() {
    let measured = Measured::from_record(&record(), &TRIED).unwrap();
    assert_eq!(measured.allocations[1].picture(0).unwrap().1.rows().len(), 1);
    assert!(measured.allocations[2].picture(0).is_none());
}

#[test]
fn an_allocation_that_is_never_alive_is_an_error() {
    let mut record = record();
    record.sizes[0][1] = AllocationSizes::default();
    let error = Measured::from_record(&record, &TRIED).unwrap_err().to_string();
    assert!(error.contains("\"a\"") || error.contains("'a'") || error.contains(" a"), "{error}");
}
