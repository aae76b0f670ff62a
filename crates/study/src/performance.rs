//! Times of simulations: those of this run, and recorded ones that are too long for every run.
//!
//! `docs/records/performance-*.json` are results of sweeps, written by `buddy sweep table --format
//! record`; the `spec` of each holds its plan. The HPC programs have a fifth of the paper's
//! footprint there.

use std::collections::BTreeMap;

use buddy_record::Record;
use buddy_sim::{Mode, Report};
use buddy_sweep::Results;
use serde::Deserialize;
use serde_json::Value;

use crate::{Findings, Point};

/// The ten programs over four links.
const HPC: &str = include_str!("../records/performance-hpc.json");
/// The six networks over four links, each with two sample sizes.
const DL: &str = include_str!("../records/performance-dl.json");
/// Metadata caches of other sizes and line sizes than the GPU's own.
const CACHES: &str = include_str!("../records/performance-caches.json");
/// Two footprints, with full caches and with caches scaled down.
const FOOTPRINTS: &str = include_str!("../records/performance-footprint.json");
/// The paper's ratios and overflow imposed on the ten programs.
const IMPOSED_HPC: &str = include_str!("../records/performance-imposed-hpc.json");
/// The same for the six networks.
const IMPOSED_DL: &str = include_str!("../records/performance-imposed-dl.json");
/// The imposed design without some of its gains, and with a codec without latency: programs, and
/// networks.
const CAUSES_HPC: &str = include_str!("../records/performance-causes-hpc.json");
const CAUSES_HPC_COSTS: &str = include_str!("../records/performance-causes-hpc-costs.json");
const CAUSES_DL: &str = include_str!("../records/performance-causes-dl.json");
const CAUSES_DL_GAINS: &str = include_str!("../records/performance-causes-dl-gains.json");
/// The imposed design of the programs with two more metadata caches.
const METADATA_HPC: &str = include_str!("../records/performance-metadata-hpc.json");
/// The ten programs with everything compressed, and over other links.
const COMPRESSED_HPC: &str = include_str!("../records/performance-compressed-hpc.json");
const COMPRESSED_HPC_LINKS: &str = include_str!("../records/performance-compressed-hpc-links.json");
/// The six networks with everything compressed, with six metadata caches, and over other links.
const COMPRESSED_DL: &str = include_str!("../records/performance-compressed-dl.json");
const COMPRESSED_DL_LINKS: &str = include_str!("../records/performance-compressed-dl-links.json");
/// Unified Memory, pinned memory and Buddy Compression at equal capacity: three programs, the other
/// seven, and the three over a slower link.
const CAPACITY: [&str; 3] = [
    include_str!("../records/performance-capacity.json"),
    include_str!("../records/performance-capacity-others.json"),
    include_str!("../records/performance-capacity-slow.json"),
];
/// The ten programs with their own targets, and with those of a smaller run.
const SMALLER: &str = include_str!("../records/performance-smaller.json");
/// L2 bytes of the paper's GPU.
pub(crate) const WHOLE_L2: f64 = 4_194_304.0;
/// Below this share of accesses over the link, a program runs the same over any link.
const NEXT_TO_NOTHING: f64 = 1e-5;

/// A row of a record: settings and results of a simulation.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Row {
    pub(crate) program: String,
    pub(crate) mode: Mode,
    pub(crate) link: f64,
    /// Footprint as in the plan: a share of the paper's, or a size.
    #[serde(default)]
    pub(crate) scale: Value,
    /// Targets as in the plan; empty for the policy's.
    #[serde(default)]
    pub(crate) targets: String,
    /// Simulated share of a network's iteration.
    #[serde(default)]
    pub(crate) sample: f64,
    /// L2 bytes.
    #[serde(default, rename = "l2.bytes")]
    pub(crate) l2: f64,
    /// Bytes of metadata cache per L2 slice.
    #[serde(default, rename = "buddy.metadata_bytes")]
    pub(crate) metadata: f64,
    /// Bytes of its lines.
    #[serde(default, rename = "buddy.metadata_line_bytes")]
    pub(crate) line: f64,
    /// Clocks of the codec.
    #[serde(default, rename = "buddy.codec_clocks")]
    pub(crate) codec: f64,
    #[serde(flatten)]
    pub(crate) timing: Timing,
}

/// Cycles of a simulation, and the use of its metadata cache and link.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub(crate) struct Timing {
    pub(crate) cycles: f64,
    /// Hit rate of the metadata cache; 0 without look-ups.
    pub(crate) metadata_hits: f64,
    /// Share of accesses that used the link.
    pub(crate) buddy_accesses: f64,
}

impl From<&Report> for Timing {
    fn from(report: &Report) -> Self {
        let (cycles, buddy) = (report.cycles as f64, &report.buddy);
        Self { cycles, metadata_hits: buddy.metadata_hit_rate, buddy_accesses: buddy.buddy_access_share }
    }
}

/// Timings by simulated point.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Timings(BTreeMap<Point, Timing>);

impl Timings {
    /// Returns the timings of this run.
    pub(crate) fn of(found: &Findings) -> Self {
        Self(found.reports.iter().map(|(point, report)| (point.clone(), report.into())).collect())
    }

    /// Returns the recorded timings: programs at a fifth of the paper's footprint, networks with
    /// their larger samples.
    pub(crate) fn recorded() -> Self {
        Self::of_rows(rows(HPC).into_iter().chain(rows(DL)))
    }

    /// Returns the timings with the paper's ratios and overflow imposed: programs of 64 MB, and 20
    /// million warp instructions of a network's iteration.
    pub(crate) fn imposed() -> Self {
        Self::of_rows(rows(IMPOSED_HPC).into_iter().chain(rows(IMPOSED_DL)))
    }

    /// Returns the timings of the same programs and samples with our data and everything compressed.
    pub(crate) fn compressed() -> Self {
        let ideal = rows(IMPOSED_HPC).into_iter().chain(rows(IMPOSED_DL));
        let ideal = ideal.filter(|row| row.mode == Mode::Ideal);
        let compressed = rows(COMPRESSED_HPC).into_iter().chain(rows(COMPRESSED_DL));
        let compressed = compressed.filter(|row| row.mode != Mode::Buddy || row.metadata == OWN_METADATA);
        let links = rows(COMPRESSED_HPC_LINKS).into_iter().chain(rows(COMPRESSED_DL_LINKS));
        Self::of_rows(ideal.chain(compressed).chain(links))
    }

    /// Returns the timings of programs of 32 MB with their own targets, or with those of a run of
    /// an eighth of their size.
    pub(crate) fn smaller(own: bool) -> Self {
        let is_shown = |row: &Row| row.mode == Mode::Ideal || row.targets.starts_with("own/") == own;
        Self::of_rows(rows(SMALLER).into_iter().filter(is_shown))
    }

    fn of_rows(rows: impl Iterator<Item = Row>) -> Self {
        let mut all: Vec<Row> = rows.collect();
        all.sort_by(|a, b| a.sample.total_cmp(&b.sample));
        let point = |row: &Row| Point::new(&row.program, row.mode).link(row.link.round() as u32);
        Self(all.into_iter().map(|row| (point(&row), row.timing)).collect())
    }

    /// Returns the timing of a point. Links that were not recorded, because almost nothing crosses
    /// them, have the timing of another.
    pub(crate) fn get(&self, point: &Point) -> Option<Timing> {
        let same = || self.0.get(&Point::new(&point.program, point.mode)).copied();
        let no_link = |one: &Timing| point.mode == Mode::Buddy && one.buddy_accesses < NEXT_TO_NOTHING;
        self.0.get(point).copied().or_else(|| same().filter(no_link))
    }

    /// Returns the speed relative to the ideal GPU.
    pub(crate) fn speed(&self, point: &Point) -> Option<f64> {
        let ideal = self.0.get(&Point::new(&point.program, Mode::Ideal))?;
        let cycles = self.get(point)?.cycles;
        (cycles > 0.0).then(|| ideal.cycles / cycles)
    }
}

/// Returns the recorded metadata caches at a fifth of the paper's footprint and 150 GB/s, including
/// the GPU's own.
pub(crate) fn caches() -> Vec<Row> {
    let other = rows(CACHES);
    let own = at_150().filter(|row| row.mode == Mode::Buddy && row.timing.metadata_hits > 0.0);
    own.map(|row| Row { metadata: 4096.0, line: 128.0, ..row }).chain(other).collect()
}

/// L2 slices of the paper's GPU.
const SLICES: f64 = 32.0;
/// Bytes of metadata cache per L2 slice of the paper's GPU.
pub(crate) const OWN_METADATA: f64 = 4096.0;

/// Returns the recorded metadata caches with everything compressed, at 150 GB/s: programs with the
/// imposed sizes, networks with their own. Every access of either looks metadata up.
pub(crate) fn compressed_caches() -> Vec<Row> {
    let is_imposed = |row: &Row| !change(row).contains("no zero");
    let small = rows(CAUSES_HPC).into_iter().filter(is_imposed).chain(rows(METADATA_HPC));
    let own = rows(IMPOSED_HPC).into_iter().filter(|row| row.mode == Mode::Buddy && row.link == 150.0);
    let own = own.map(|row| Row { metadata: OWN_METADATA, ..row });
    small.chain(own).chain(rows(COMPRESSED_DL)).collect()
}

/// The imposed design with some changes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cause {
    /// Description of the change.
    pub(crate) change: String,
    /// Speeds relative to the ideal GPU.
    pub(crate) timings: Timings,
}

/// Returns the recorded changes of the imposed design, in a stable order.
pub(crate) fn causes() -> Vec<Cause> {
    let ideal: Vec<Row> = rows(IMPOSED_HPC).into_iter().chain(rows(IMPOSED_DL)).collect();
    let ideal = || ideal.iter().filter(|row| row.mode == Mode::Ideal).cloned();
    let mut changed: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for row in [CAUSES_HPC, CAUSES_HPC_COSTS, CAUSES_DL, CAUSES_DL_GAINS].into_iter().flat_map(rows) {
        changed.entry(change(&row)).or_default().push(row);
    }
    let cause =
        |(change, rows): (String, Vec<Row>)| Cause { change, timings: Timings::of_rows(ideal().chain(rows)) };
    changed.into_iter().map(cause).collect()
}

/// Describes what a row changes of the imposed design.
fn change(row: &Row) -> String {
    let mut parts: Vec<String> = Vec::new();
    let numbers: Vec<&str> = row.targets.trim_start_matches("imposed:").split(',').collect();
    if numbers.get(1) == Some(&"0") {
        parts.push("no overflow".to_owned());
    }
    if numbers.first() == numbers.get(2) {
        parts.push("no zero entries".to_owned());
    }
    if row.metadata != OWN_METADATA {
        let kib = row.metadata * SLICES / 1024.0;
        let size = if kib < 1024.0 { format!("{kib} KiB") } else { format!("{} MiB", kib / 1024.0) };
        parts.push(format!("{size} of metadata cache"));
    }
    if row.codec == 0.0 {
        parts.push("a codec without latency".to_owned());
    }
    parts.join(", ")
}

/// Time of a program relative to a V100 that holds everything.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AtCapacity {
    pub(crate) program: String,
    pub(crate) mode: Mode,
    /// GB/s.
    pub(crate) link: u32,
    /// Bytes of all memory over those of device memory.
    pub(crate) capacity: f64,
    pub(crate) time: f64,
}

/// Returns the recorded times at equal capacity. Pinned memory has a capacity of 1, since it does
/// not depend on it.
pub(crate) fn at_capacity() -> Vec<AtCapacity> {
    let all: Vec<CapacityRow> = CAPACITY.into_iter().flat_map(parsed).collect();
    let ideal = |program: &str| {
        all.iter().find(|row| row.program == program && row.mode == Mode::Ideal).map(|row| row.cycles)
    };
    let one = |row: &CapacityRow| {
        let capacity = match row.mode {
            Mode::Um => 1.0 / (1.0 - row.oversubscription),
            Mode::Pinned => 1.0,
            _ => row.targets.strip_prefix("capacity:")?.parse().ok()?,
        };
        let (program, time) = (row.program.clone(), row.cycles / ideal(&row.program)?);
        Some(AtCapacity { program, mode: row.mode, link: row.link.round() as u32, capacity, time })
    };
    all.iter().filter(|row| row.mode != Mode::Ideal).filter_map(one).collect()
}

/// A row of the records of equal capacity. Settings that a mode ignores may be missing.
#[derive(Debug, Deserialize)]
struct CapacityRow {
    program: String,
    mode: Mode,
    #[serde(default)]
    link: f64,
    #[serde(default)]
    oversubscription: f64,
    #[serde(default)]
    targets: String,
    cycles: f64,
}

/// Returns programs at two footprints, with full caches and with caches scaled down.
pub(crate) fn footprints() -> Vec<Row> {
    let (cut, whole) = (rows(FOOTPRINTS), at_150().map(|row| Row { l2: WHOLE_L2, ..row }));
    let is_there = |row: &Row| cut.iter().any(|other| other.program == row.program);
    whole.filter(is_there).chain(cut.clone()).collect()
}

/// Returns the programs at a fifth of the paper's footprint over its link.
fn at_150() -> impl Iterator<Item = Row> {
    rows(HPC).into_iter().filter(|row| row.link == 150.0)
}

/// Parses the rows of a record; a test parses all of them.
fn rows(text: &str) -> Vec<Row> {
    parsed(text)
}

fn parsed<T: serde::de::DeserializeOwned>(text: &str) -> Vec<T> {
    let record: Record<Results> = Record::from_json(text).expect("a record of `buddy sweep table`");
    let row = |mut row: serde_json::Map<String, Value>| {
        // A setting that a mode ignores is null.
        row.retain(|_, value| !value.is_null());
        serde_json::from_value(Value::Object(row)).expect("settings and figures of a simulation")
    };
    record.data.rows.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(program: &str, mode: Mode, sample: f64, cycles: f64, buddy_accesses: f64) -> Row {
        let timing = Timing { cycles, metadata_hits: 1.0, buddy_accesses };
        let text = format!(
            r#"{{"program": "{program}", "mode": "ideal", "link": 150.0, "cycles": 1, "metadata_hits": 1, "buddy_accesses": 0}}"#
        );
        Row { mode, sample, timing, ..serde_json::from_str(&text).unwrap() }
    }

    #[test]
    fn the_larger_sample_counts_and_unused_links_are_interchangeable() {
        let rows = [
            row("alexnet", Mode::Ideal, 0.02, 100.0, 0.0),
            row("alexnet", Mode::Ideal, 0.01, 70.0, 0.0),
            row("alexnet", Mode::Buddy, 0.02, 125.0, 0.04),
            row("cg", Mode::Ideal, 0.0, 80.0, 0.0),
            row("cg", Mode::Buddy, 0.0, 40.0, 0.0),
        ];
        let timings = Timings::of_rows(rows.into_iter());
        let speed = |name: &str, mode, link| timings.speed(&Point::new(name, mode).link(link));
        assert_eq!(speed("alexnet", Mode::Buddy, 150), Some(0.8));
        assert_eq!(speed("alexnet", Mode::Buddy, 50), None, "its link matters, so it must be simulated");
        assert_eq!(speed("cg", Mode::Buddy, 50), Some(2.0));
        assert_eq!(speed("cg", Mode::Bandwidth, 150), None, "no guess without a simulation");
    }

    #[test]
    fn every_change_of_the_imposed_design_has_a_name() {
        let causes = causes();
        assert!(causes.len() >= 5 && causes.iter().all(|cause| !cause.change.is_empty()), "{causes:?}");
        let of = |change: &str, name: &str| {
            let cause = causes.iter().find(|cause| cause.change == change).unwrap();
            cause.timings.speed(&Point::new(name, Mode::Buddy))
        };
        assert!(of("no overflow", "alexnet") > Timings::imposed().speed(&Point::new("alexnet", Mode::Buddy)));
        assert!(of("no zero entries", "seismic").is_some());
    }

    #[test]
    fn capacities_are_equal_and_relative_to_a_gpu_that_holds_everything() {
        let all = at_capacity();
        for program in ["palm", "sp", "ilbdc"] {
            let of = |mode: Mode, link: u32| {
                let is_it =
                    |one: &&AtCapacity| (one.program.as_str(), one.mode, one.link) == (program, mode, link);
                let mut found: Vec<f64> = all.iter().filter(is_it).map(|one| one.capacity).collect();
                found.sort_by(f64::total_cmp);
                found
            };
            let (um, buddy) = (of(Mode::Um, 75), of(Mode::Buddy, 75));
            assert_eq!(buddy, [1.1, 1.25, 1.5, 2.0]);
            assert!(um.iter().zip(&buddy).all(|(um, buddy)| (um - buddy).abs() < 1e-3), "{um:?}");
            assert_eq!((of(Mode::Pinned, 75).len(), of(Mode::Buddy, 50).len()), (1, 2));
        }
        for program in buddy_workloads::ALL.iter().map(|info| info.name) {
            for (mode, count) in [(Mode::Um, 2), (Mode::Buddy, 2), (Mode::Pinned, 1)] {
                for link in [75, 50] {
                    let is_it = |one: &&AtCapacity| {
                        let near = |capacity: f64| (one.capacity / capacity - 1.0).abs() < 1e-3;
                        (one.program.as_str(), one.mode, one.link) == (program, mode, link)
                            && (mode == Mode::Pinned || near(1.5) || near(2.0))
                    };
                    assert_eq!(all.iter().filter(is_it).count(), count, "{program} {mode:?} {link}");
                }
            }
        }
    }

    #[test]
    fn the_records_are_complete() {
        let compressed = [COMPRESSED_HPC, COMPRESSED_HPC_LINKS, COMPRESSED_DL, COMPRESSED_DL_LINKS];
        let causes = [CAUSES_HPC, CAUSES_HPC_COSTS, CAUSES_DL, CAUSES_DL_GAINS];
        let own = [HPC, DL, CACHES, FOOTPRINTS, SMALLER, IMPOSED_HPC, IMPOSED_DL, METADATA_HPC];
        for text in own.into_iter().chain(causes).chain(compressed) {
            let record: Record<Results> = Record::from_json(text).unwrap();
            assert_eq!(record.data.missing, 0, "{}", record.data.name);
            assert!(record.spec["plan"].as_str().is_some_and(|plan| plan.contains("[axes]")));
            assert!(rows(text).iter().all(|row| row.timing.cycles > 0.0));
        }
    }
}
