//! The figures of a run: what each is called, what it says, and where it comes from.

use buddy_core::Unit;
use buddy_sim::Mode;

use super::Run;

/// One figure, a column of a table.
pub(crate) struct Measure {
    /// Its name as the head of a column.
    pub(crate) name: &'static str,
    /// What it says, for a reader who sees it for the first time.
    pub(crate) about: &'static str,
    pub(crate) unit: Unit,
    /// Whether more of it is better; none where neither is.
    pub(crate) better: Option<bool>,
    get: fn(&Run<'_>) -> Option<f64>,
}

impl Measure {
    /// Its value in a run; the speed is over that of the first run.
    pub(crate) fn of(&self, run: &Run<'_>, first: &Run<'_>) -> Option<f64> {
        let cycles = |run: &Run<'_>| run.done.report.cycles.max(1) as f64;
        let value = if self.name == SPEED { Some(cycles(first) / cycles(run)) } else { (self.get)(run) };
        value.filter(|value| value.is_finite())
    }
}

pub(crate) const SPEED: &str = "speed";

const fn measure(
    name: &'static str,
    unit: Unit,
    better: Option<bool>,
    about: &'static str,
    get: fn(&Run<'_>) -> Option<f64>,
) -> Measure {
    Measure { name, about, unit, better, get }
}

/// All of them, those that matter most first.
pub(crate) static MEASURES: [Measure; 12] = [
    measure(SPEED, Unit::Ratio, Some(true), "how many times as fast as the first run", |_| None),
    measure("cycles", Unit::Count, Some(false), "cycles of the GPU's clock from start to end", |run| {
        Some(run.done.report.cycles as f64)
    }),
    measure("capacity", Unit::Ratio, Some(true), "memory over the device memory that it takes", capacity),
    measure(
        "buddy",
        Unit::Percent,
        Some(false),
        "accesses to memory that need the link to buddy memory",
        |run| some(run.done.report.buddy.buddy_access_share),
    ),
    measure("link in", Unit::Number, None, "GB/s over the link into the GPU", |run| {
        some(run.done.report.link_traffic.read_gb_per_s)
    }),
    measure("link out", Unit::Number, None, "GB/s over the link out of the GPU", |run| {
        some(run.done.report.link_traffic.written_gb_per_s)
    }),
    measure("DRAM", Unit::Number, None, "GB/s of device memory, reads and writes together", |run| {
        Some(run.done.report.dram.gb_per_s)
    }),
    measure("L2 hits", Unit::Percent, Some(true), "accesses to L2 that it holds already", |run| {
        some(run.done.report.l2.hit_rate)
    }),
    measure("L1 hits", Unit::Percent, Some(true), "accesses to L1 that it holds already", |run| {
        some(run.done.report.l1.hit_rate)
    }),
    measure(
        "meta hits",
        Unit::Percent,
        Some(true),
        "look-ups of metadata that its cache holds already",
        |run| some(run.done.report.buddy.metadata_hit_rate),
    ),
    measure("IPC", Unit::Number, Some(true), "warp instructions in each cycle", |run| {
        Some(run.done.report.ipc)
    }),
    measure("overflow", Unit::Percent, Some(false), "entries that do not fit their target", |run| {
        let compressed = matches!(run.done.report.mode, Mode::Bandwidth | Mode::Buddy);
        compressed.then(|| run.scenario.config.map.overflow_share())
    }),
];

/// Columns that a table leaves out where it would be too wide, the first of them first.
pub(crate) const SPARE: [&str; 6] = ["IPC", "meta hits", "L1 hits", "overflow", "L2 hits", "DRAM"];

/// A figure that is nothing where there was nothing to count.
fn some(value: f64) -> Option<f64> {
    (value != 0.0).then_some(value)
}

/// Only Buddy Compression makes room; in host memory, where pages move, or where targets are for nothing, there is no such ratio.
fn capacity(run: &Run<'_>) -> Option<f64> {
    match run.done.report.mode {
        Mode::Ideal | Mode::Bandwidth => Some(1.0),
        Mode::Buddy => (!run.matches_nothing()).then(|| run.scenario.config.map.capacity_ratio()),
        Mode::Pinned | Mode::Um => None,
    }
}
