//! Compressible memory of the GPU itself: what reads and writes of given data gain and lose with
//! NVIDIA's hardware compression, beside plain memory in the same run. It saves bandwidth, never
//! capacity: the paper's bandwidth-only compression.

mod cases;
mod memory;

use buddy_cuda::{DeviceBytes, DeviceSpan, Gpu, Launch};
use buddy_record::{RecordKind, Skipped};
pub use cases::{CompressibleCase, alternating, compressible_cases};
use memory::CompressibleMemory;
use serde::{Deserialize, Serialize};

use crate::{Error, Lab};

/// Launches that are timed together.
const LAUNCHES: usize = 3;
/// Most bytes of a case's data: they stay in the L2 cache while they are written again and again.
const TILE_BYTES: u64 = 8 << 20;
/// Bytes that a warp reads or writes at a time.
const STEP: u64 = 2048;

/// Speeds of plain and of compressible memory on one GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompressibleReport {
    /// The vendor's name for the GPU.
    pub gpu: String,
    /// CUDA version of its driver.
    pub driver: u32,
    /// Bytes of each memory.
    pub bytes: u64,
    /// The measurements in order.
    pub rows: Vec<CompressibleRow>,
    /// Datasets, fields and files that were skipped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
}

impl RecordKind for CompressibleReport {
    const KIND: &'static str = "gpu-compressible";
    const VERSION: u32 = 1;
}

/// 10^9 bytes a second for one kind of data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompressibleRow {
    /// Name of the data.
    pub data: String,
    /// Bytes of data that repeat in memory.
    pub tile_bytes: u64,
    /// Writes of plain memory.
    pub plain_write: f64,
    /// Reads of plain memory.
    pub plain_read: f64,
    /// Writes of compressible memory.
    pub write: f64,
    /// Reads of compressible memory that was written so.
    pub read: f64,
}

/// Measures each case in `bytes` of plain and of compressible memory.
///
/// # Errors
/// [`Error::Compressible`] if the GPU or driver gives no compressible memory, [`Error::Differs`] if
/// memory does not hold what was written; compiler and driver errors.
pub fn compressible(
    gpu: &Gpu,
    bytes: u64,
    cases: &[CompressibleCase],
    mut progress: impl FnMut(&CompressibleRow),
) -> Result<CompressibleReport, Error> {
    let (info, lab) = (gpu.info()?, Lab::new(gpu)?);
    let bytes = bytes / STEP * STEP;
    let plain = lab.bytes(bytes)?;
    let given = CompressibleMemory::new(gpu, lab.stream.context(), bytes)?;
    let memory = given.ok_or_else(|| Error::Compressible { gpu: info.name.clone() })?;
    let (rows, skipped) = (Vec::new(), Vec::new());
    let mut report = CompressibleReport { gpu: info.name, driver: info.driver, bytes, rows, skipped };
    for case in cases {
        let tile = case.tile(&lab, TILE_BYTES.min(bytes))?;
        let (plain_write, plain_read) = speeds(&lab, &tile, plain.all())?;
        let (write, read) = speeds(&lab, &tile, memory.span(bytes))?;
        lab.same("compressible memory", plain.all(), memory.span(bytes))?;
        let (data, tile_bytes) = (case.name(), tile.len());
        let row = CompressibleRow { data, tile_bytes, plain_write, plain_read, write, read };
        progress(&row);
        report.rows.push(row);
    }
    Ok(report)
}

/// Returns the speed of writes of a repeated tile, and of reads.
fn speeds(lab: &Lab, tile: &DeviceBytes, to: DeviceSpan<'_>) -> Result<(f64, f64), Error> {
    let count = lab.bytes(8)?;
    let gb_per_s = |us: f64| to.bytes() as f64 / us / 1e3;
    let write = lab.time(LAUNCHES, |_| lab.repeat(tile.all(), to))?;
    let read = lab.time(LAUNCHES, |_| lab.read_all(to, count.all()))?;
    Ok((gb_per_s(write), gb_per_s(read)))
}

impl Lab {
    /// Fills a span with copies of a tile of whole 16 bytes.
    fn repeat(&self, tile: DeviceSpan<'_>, to: DeviceSpan<'_>) -> Result<(), Error> {
        let (tile, to) = (tile.check_entries()?, to.check_entries()?);
        let arguments = (tile.address(), tile.bytes() / 16, to.address(), to.bytes() / 16);
        let blocks = u64::from(16 * self.gpu.multiprocessors());
        // SAFETY: the arguments of `buddy_repeat`, which reads only the tile and writes only `to`.
        unsafe { self.own.start("buddy_repeat", Launch::row(blocks, 256), &arguments) }
    }
}
