//! Results of a wave run: a record and a picture.

use buddy_record::RecordKind;
use serde::{Deserialize, Serialize};

use super::{Grid, plan::Plan};

/// A wave simulation by one or several ways, on one GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LargeReport {
    /// The vendor's name for the GPU.
    pub gpu: String,
    /// CUDA version of its driver.
    pub driver: u32,
    /// Device memory, all of it.
    pub memory_bytes: u64,
    /// Cells.
    pub grid: Grid,
    /// Bytes of the plain fields, 12 a cell.
    pub plain_bytes: u64,
    /// Steps until the wave has passed every boundary.
    pub steps_to_boundaries: u32,
    /// Plan made from a smaller run, if any.
    pub plan: Option<Plan>,
    /// Comparisons at small sizes, bit for bit.
    pub checks: Vec<LargeCheck>,
    /// Speed with every cell nonzero, if plain memory fits.
    pub all_alive: Option<AllAlive>,
    /// Each run, in order.
    pub runs: Vec<LargeRun>,
    /// True if the run was stopped early.
    pub stopped: bool,
}

impl RecordKind for LargeReport {
    const KIND: &'static str = "gpu-large";
    const VERSION: u32 = 1;
}

/// Location of the wave's fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// In compressed memory.
    Packed,
    /// In plain device memory.
    Plain,
    /// Some planes in host memory, copied in slabs while others are computed.
    Slabs,
    /// Some planes in pinned host memory, accessed in place.
    Pinned,
}

impl Way {
    /// All ways.
    pub const ALL: [Self; 4] = [Self::Packed, Self::Plain, Self::Slabs, Self::Pinned];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Packed => "packed",
            Self::Plain => "plain",
            Self::Slabs => "slabs",
            Self::Pinned => "pinned",
        }
    }
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LargeRun {
    /// The method.
    pub way: Way,
    /// Steps made.
    pub steps: u32,
    /// Steps requested.
    pub of: u32,
    /// Bytes for fields on the device.
    pub device_bytes: u64,
    /// Bytes for fields in host memory.
    pub host_bytes: u64,
    /// Seconds of all steps.
    pub seconds: f64,
    /// 10^9 cells a second, over all steps.
    pub mean_gcells: f64,
    /// The same over the last interval.
    pub end_gcells: f64,
    /// Cells that differ from plain memory's result, if compared.
    pub differing: Option<u64>,
    /// Course of the run; only for compressed memory.
    pub over_time: Vec<Moment>,
}

/// Compressed memory after an interval of steps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// Steps so far.
    pub step: u32,
    /// Milliseconds a step, over the interval, retargeting included.
    pub ms_per_step: f64,
    /// 10^9 cells a second, over the interval.
    pub gcells: f64,
    /// Share of bricks that are zero.
    pub zero: f64,
    /// Share that are windows: 112 of 128 bytes.
    pub window: f64,
    /// Share that are raw.
    pub raw: f64,
    /// Share of bricks that touch host memory in every step.
    pub overflow: f64,
    /// Bytes of units on the device that pages have.
    pub device_bytes: u64,
    /// Bytes of units in host memory that pages have.
    pub host_bytes: u64,
    /// Share of pages that have units.
    pub lit: f64,
    /// True if bricks are stored as windows.
    pub windows: bool,
    /// Units that retargets moved so far.
    pub moved: u32,
}

/// One comparison at a small size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LargeCheck {
    /// The two sides of the comparison.
    pub what: String,
    /// Steps before the comparison.
    pub steps: u32,
    /// Values that differ; the run ends unless zero.
    pub differing: u64,
}

/// Milliseconds per step with waves everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AllAlive {
    /// In plain memory.
    pub plain_ms: f64,
    /// In compressed memory, bricks raw.
    pub raw_ms: f64,
    /// In compressed memory, bricks as windows.
    pub window_ms: f64,
    /// Fraction of bricks that are windows.
    pub windows: f64,
}

/// A slice of the wave.
#[derive(Debug, Clone, PartialEq)]
pub struct LargePicture {
    /// Values in a row.
    pub width: u32,
    /// The wave, row after row downwards.
    pub values: Vec<f32>,
    /// The rock: 0 the slowest, 255 the fastest.
    pub rock: Vec<u8>,
}
