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
/// Unified Memory and pinned memory on a V100.
const UNIFIED: &str = include_str!("../records/performance-um.json");
/// Two footprints, with full caches and with caches scaled down.
const FOOTPRINTS: &str = include_str!("../records/performance-footprint.json");
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

/// Returns programs at two footprints, with full caches and with caches scaled down.
pub(crate) fn footprints() -> Vec<Row> {
    let (cut, whole) = (rows(FOOTPRINTS), at_150().map(|row| Row { l2: WHOLE_L2, ..row }));
    let is_there = |row: &Row| cut.iter().any(|other| other.program == row.program);
    whole.filter(is_there).chain(cut.clone()).collect()
}

/// Returns the time of each recorded program with Unified Memory at an oversubscription, and with
/// pinned memory, both relative to a V100 that holds everything.
pub(crate) fn unified_memory(oversubscription: f64) -> Vec<(String, f64, f64)> {
    let all: Vec<UnifiedRow> = parsed(UNIFIED);
    let cycles = |program: &str, mode: Mode, over: f64| {
        let is_it = |row: &&UnifiedRow| {
            row.program == program && row.mode == mode && (row.oversubscription - over).abs() < 1e-9
        };
        all.iter().find(is_it).map(|row| row.cycles)
    };
    let of = |ideal: &UnifiedRow| {
        let name = &ideal.program;
        let unified = cycles(name, Mode::Um, oversubscription)? / ideal.cycles;
        Some((name.clone(), unified, cycles(name, Mode::Pinned, 0.0)? / ideal.cycles))
    };
    all.iter().filter(|row| row.mode == Mode::Ideal).filter_map(of).collect()
}

/// A row of the record of Unified Memory.
#[derive(Debug, Deserialize)]
struct UnifiedRow {
    program: String,
    mode: Mode,
    oversubscription: f64,
    cycles: f64,
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
    let row = |row| serde_json::from_value(Value::Object(row)).expect("settings and figures of a simulation");
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
    fn unified_memory_is_relative_to_a_gpu_that_holds_everything() {
        let all = unified_memory(0.5);
        let palm = all.iter().find(|(name, _, _)| name == "palm").unwrap();
        assert_eq!(palm.1, 208_080_595.0 / 13_104_033.0);
        assert_eq!((all.len(), palm.2), (3, 92_919_876.0 / 13_104_033.0));
    }

    #[test]
    fn the_records_are_complete() {
        for text in [HPC, DL, CACHES, FOOTPRINTS] {
            let record: Record<Results> = Record::from_json(text).unwrap();
            assert_eq!(record.data.missing, 0, "{}", record.data.name);
            assert!(record.spec["plan"].as_str().is_some_and(|plan| plan.contains("[axes]")));
            assert!(rows(text).iter().all(|row| row.timing.cycles > 0.0));
        }
    }
}
