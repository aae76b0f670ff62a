//! Hand-made findings, small enough to compute every number of a figure on paper.
//!
//! An allocation has 128 entries, which are two pages and 16384 bytes. There are two snapshots. The
//! bytes of eight sizes are those of the classes: 0, 8, 32, 64, 96, 128.
//!
//! | run | allocation | zero, 8, 32, 64, 96, raw | then | its target |
//! |---|---|---|---|---|
//! | cg | a | 64 B x 128 | 64 B x 96, raw x 32 (25%) | 2x; with planes64 32 B x 128: 4x |
//! | cg | b | 32 B x 64, raw x 64 | the same | 1x; by page 4x and 1x |
//! | seismic | p | zero x 128 | zero x 72 (56%), 8 B x 24, raw x 32 (25%) | 4x, or 16x |
//! | seismic | q | raw x 128 | the same | 1x |
//! | alexnet | x | zero x 48, 32 B x 48, 64 B x 32 (25%) | the same; with bpc-best zero x 48, 8 B x 48, 32 B x 32 | 4x |
//! | Caffe's alexnet | x, x.output | as x; raw x 128 | the same | 4x; 1x |
//! | resnet50 | w | raw x 128 | the same | 1x |
//! | resnet50 | g | not alive | 96 B x 128 | 4/3x |
//! | public cg | cg.cu:1, cg.cu:2 | as cg | as cg | as cg |
//! | public is | is.cu:1 | zero x 128 | 64 B x 128 | 2x |
//! | resnet50_bf16 | t | raw x 128; with bf16 96 B x 128 | the same | 1x; 4/3x |
//!
//! Device memory: cg 8192 + 16384 of 32768 bytes, so 4/3; seismic 1024 + 16384 of 32768, so 32/17;
//! alexnet 4096 of 16384, so 4; resnet50 16384 + 12288 of 32768, so 8/7. Overflow: cg and seismic
//! 32 of 256 entries in the second snapshot, 1/16 in the mean; alexnet 32 of 128 in both, 1/4;
//! resnet50 none.

use std::collections::BTreeMap;

use buddy_core::{Dtype, Histogram, PageMap, SizeClass};
use buddy_record::{
    AllocationInfo, AllocationSizes, Chart, Figure, Panel, Quantity, RunInfo, RunRecord, SnapshotInfo,
    spec::{Gpu, Link},
};
use buddy_sim::{Config, Report, Simulator};

use crate::{Findings, Point, Program, Recorded, Settings};

/// Entries by class in each of two snapshots; all zero if not allocated.
type Classes = [[u64; 6]; 2];
/// An allocation: its name, and its entries with each codec.
type Allocation<'a> = (&'a str, &'a [(&'a str, Classes)]);

const RAW: [u64; 6] = [0, 0, 0, 0, 0, 128];

/// Returns the findings of the table above, without simulations.
pub(crate) fn findings() -> Findings {
    let mut found = Findings::new(Settings::QUICK);
    let a = [[0, 0, 0, 128, 0, 0], [0, 0, 0, 96, 0, 32]];
    let small = [[0, 0, 128, 0, 0, 0]; 2];
    let b = [[0, 0, 64, 0, 0, 64]; 2];
    let cg = run("cg", &[("a", &[("bpc", a), ("planes64", small)]), ("b", &[("bpc", b), ("planes64", b)])]);
    let p = [[128, 0, 0, 0, 0, 0], [72, 24, 0, 0, 0, 32]];
    let q = [RAW; 2];
    let seismic =
        run("seismic", &[("p", &[("bpc", p), ("planes64", p)]), ("q", &[("bpc", q), ("planes64", q)])]);
    found.programs = [program("cg", cg), program("seismic", seismic)].into();
    let x = [[48, 0, 48, 32, 0, 0]; 2];
    let x_again = [[48, 48, 32, 0, 0, 0]; 2];
    let g = [[0; 6], [0, 0, 0, 0, 128, 0]];
    let half = [[0, 0, 0, 0, 128, 0]; 2];
    found.networks = [
        network("alexnet", &[("activations/x", &[("bpc", x), ("bpc-best", x_again)])]),
        network("resnet50", &[("weights/w", &[("bpc", q)]), ("gradients/g", &[("bpc", g)])]),
        network("resnet50_bf16", &[("activations/t", &[("bpc", q), ("bf16", half)])]),
    ]
    .into();
    found.caffe =
        [network("alexnet", &[("activations/x", &[("bpc", x)]), ("gradients/x.output", &[("bpc", q)])])]
            .into();
    // A public cg equal to ours, and an is whose memory starts as zeros.
    let keys = [[128, 0, 0, 0, 0, 0], [0, 0, 0, 128, 0, 0]];
    found.public = [
        network(
            "cg",
            &[("cg.cu:1", &[("bpc", a), ("planes64", small)]), ("cg.cu:2", &[("bpc", b), ("planes64", b)])],
        ),
        network("is", &[("is.cu:1", &[("bpc", keys)])]),
    ]
    .into();
    found
}

fn program(name: &str, record: RunRecord) -> (String, Program) {
    let profile = Recorded::new(record).expect("the record is valid").profile;
    let checks = vec![("residual".to_owned(), name == "cg")];
    (name.to_owned(), Program { profile, checks, typical: 0, classes: Vec::new() })
}

fn network(name: &str, allocations: &[Allocation<'_>]) -> (String, Recorded) {
    (name.to_owned(), Recorded::new(run(name, allocations)).expect("the record is valid"))
}

fn run(name: &str, allocations: &[Allocation<'_>]) -> RunRecord {
    let info = |(name, _): &Allocation<'_>| AllocationInfo {
        name: (*name).to_owned(),
        call_site: name.split('/').next().unwrap_or_default().to_owned(),
        base: 0,
        bytes: 128 * 128,
        dtype: Dtype::F32,
    };
    let mut run = RunInfo::new(name, Default::default(), allocations.iter().map(info).collect());
    run.snapshots = vec![SnapshotInfo { step: 0, label: String::new(), file: None }; 2];
    let sizes = |snapshot: usize| allocations.iter().map(|(_, codecs)| sizes(codecs, snapshot)).collect();
    RunRecord { run, sizes: vec![sizes(0), sizes(1)] }
}

fn sizes(codecs: &[(&str, Classes)], snapshot: usize) -> AllocationSizes {
    let alive = codecs.iter().map(|(codec, classes)| ((*codec).to_owned(), classes[snapshot]));
    let alive: BTreeMap<String, [u64; 6]> =
        alive.filter(|(_, classes)| classes.iter().sum::<u64>() > 0).collect();
    let histogram = |classes: [u64; 6]| {
        let optimistic_bytes = Histogram { classes, optimistic_bytes: 0 }.stored_bytes();
        Histogram { classes, optimistic_bytes }
    };
    AllocationSizes {
        histograms: alive.iter().map(|(codec, classes)| (codec.clone(), histogram(*classes))).collect(),
        pages: alive.iter().map(|(codec, classes)| (codec.clone(), pages(classes))).collect(),
        ..Default::default()
    }
}

/// Returns both pages, with entries ordered by class.
fn pages(classes: &[u64; 6]) -> PageMap {
    let entries = SizeClass::ALL.iter().flat_map(|&class| vec![class; classes[class.index()] as usize]);
    PageMap::from_pages(2, entries.collect())
}

/// Returns the report of a simulation that took `cycles` cycles.
pub(crate) fn report(cycles: u64) -> Report {
    let gpu = Gpu::named("paper").expect("the paper's GPU is built in");
    let link = Link::named("150").expect("the paper's link is built in");
    Report { cycles, ..Simulator::new(Config::new(gpu, link)).report() }
}

/// Adds simulations with the given cycles.
pub(crate) fn simulated(found: &mut Findings, points: impl IntoIterator<Item = (Point, u64)>) {
    found.reports.extend(points.into_iter().map(|(point, cycles)| (point, report(cycles))));
}

/// Returns a chart of a figure by panel index.
pub(crate) fn chart(figure: &Figure, panel: usize) -> &Chart {
    match &figure.panels[panel] {
        Panel::Chart(chart) => chart,
        other => panic!("panel {panel} is not a chart: {other:?}"),
    }
}

/// Returns the points of a series.
pub(crate) fn points<'a>(chart: &'a Chart, series: &str) -> &'a [(f64, f64)] {
    &chart.series.iter().find(|one| one.name == series).unwrap_or_else(|| panic!("no series {series}")).points
}

/// Returns the bar of a series in a group.
pub(crate) fn bar(chart: &Chart, series: &str, group: &str) -> Option<f64> {
    let x = chart.groups.iter().position(|name| name == group).unwrap_or_else(|| panic!("no group {group}"));
    points(chart, series).iter().find(|(at, _)| *at == x as f64).map(|(_, y)| *y)
}

/// Returns our number of the quantity whose name starts with `name`.
pub(crate) fn ours(figure: &Figure, name: &str) -> Option<f64> {
    let is_it = |quantity: &&Quantity| quantity.name.starts_with(name);
    figure.quantities.iter().find(is_it).unwrap_or_else(|| panic!("no quantity {name}")).ours
}

/// Asserts that a number is equal up to rounding.
#[track_caller]
pub(crate) fn near(found: Option<f64>, expected: f64) {
    assert!(
        found.is_some_and(|found| (found - expected).abs() < 1e-12 * expected.abs().max(1.0)),
        "{found:?}, not {expected}"
    );
}
