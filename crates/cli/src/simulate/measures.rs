//! Metrics of a run: name, meaning, unit and source.

use buddy_record::Unit;
use buddy_sim::Mode;

use super::Run;

/// One metric, a column of a table.
pub(crate) struct Measure {
    /// Column header.
    pub(crate) name: &'static str,
    about: &'static str,
    pub(crate) unit: Unit,
    /// True if higher is better, false if lower is, `None` if neither.
    pub(crate) better: Option<bool>,
    get: fn(&Run<'_>) -> Option<f64>,
}

impl Measure {
    /// Returns its value for a run.
    pub(crate) fn of(&self, run: &Run<'_>) -> Option<f64> {
        (self.get)(run).filter(|value| value.is_finite())
    }

    /// Returns an explanation for readers who see it for the first time.
    pub(crate) fn about(&self, run: &Run<'_>) -> String {
        if self.name == SPEED { format!("speedup over {}", run.base.about) } else { self.about.to_owned() }
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

/// All metrics, most important first.
pub(crate) static MEASURES: [Measure; 12] = [
    measure(SPEED, Unit::Ratio, Some(true), "", |run| Some(run.base.seconds? / run.done.report.seconds)),
    measure("cycles", Unit::Count, Some(false), "cycles of the GPU's clock from start to end", |run| {
        Some(run.done.report.cycles as f64)
    }),
    measure("capacity", Unit::Ratio, Some(true), "memory size divided by the device memory used", capacity),
    measure(
        "buddy",
        Unit::Percent,
        Some(false),
        "memory accesses that use the link to buddy memory",
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
    measure("L2 hits", Unit::Percent, Some(true), "L2 accesses that hit", |run| {
        some(run.done.report.l2.hit_rate)
    }),
    measure("L1 hits", Unit::Percent, Some(true), "L1 accesses that hit", |run| {
        some(run.done.report.l1.hit_rate)
    }),
    measure("meta hits", Unit::Percent, Some(true), "metadata look-ups that hit the metadata cache", |run| {
        some(run.done.report.buddy.metadata_hit_rate)
    }),
    measure("IPC", Unit::Number, Some(true), "warp instructions per cycle", |run| Some(run.done.report.ipc)),
    measure("overflow", Unit::Percent, Some(false), "entries that do not fit their target", |run| {
        let compressed = run.done.report.mode.compresses();
        compressed.then(|| run.scenario.config.map.overflow_share())
    }),
];

/// Columns omitted from a table that is too wide, in this order.
pub(crate) const SPARE: [&str; 6] = ["IPC", "meta hits", "L1 hits", "overflow", "L2 hits", "DRAM"];

/// Returns `None` for a count of zero.
fn some(value: f64) -> Option<f64> {
    (value != 0.0).then_some(value)
}

/// Returns the capacity ratio. Pinned and Unified Memory have none, nor do targets that match no
/// memory.
fn capacity(run: &Run<'_>) -> Option<f64> {
    match run.done.report.mode {
        Mode::Ideal | Mode::Bandwidth | Mode::Compressible => Some(1.0),
        Mode::Buddy => (!run.matches_nothing()).then(|| run.scenario.config.map.capacity_ratio()),
        Mode::Pinned | Mode::Um => None,
    }
}
