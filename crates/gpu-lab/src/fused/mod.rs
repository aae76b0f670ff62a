//! Kernels that work in compressed memory, compared with the same work in plain memory in one run:
//! the examples of `buddy_device.cuh`, verified and measured.

mod check;
mod frozen;
mod linear;
mod spmv;
mod stencil;
mod summary;
mod tight;
mod times;
mod trial;

use std::time::Instant;

use buddy_cuda::{Gpu, Source};
use buddy_record::RecordKind;
use serde::{Deserialize, Serialize};

pub use check::{check_linear, check_linear_shapes};
pub use spmv::SpmvShape;
pub use stencil::StencilShape;
pub use summary::Summary;
pub use trial::{LLAMA, LinearTrials, TrialTime};

use crate::{Error, Lab};

/// Name of the plain-memory version of a kernel.
const TWIN: &str = "the same kernel, plain";
/// Bytes read to measure memory bandwidth.
const PROBE: u64 = 1 << 30;

/// Fused kernels on one GPU, each compared with a plain one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FusedReport {
    /// The vendor's name for the GPU.
    pub gpu: String,
    /// CUDA version of its driver.
    pub driver: u32,
    /// Bandwidth of a kernel that reads and discards, in 10^9 bytes per second.
    pub read_gb_per_s: f64,
    /// Bandwidth of a copy, bytes read and written.
    pub copy_gb_per_s: f64,
    /// The shapes of the kernels.
    pub shapes: Shapes,
    /// A row for each correct kernel and size, in order of measurement.
    pub rows: Vec<FusedRow>,
    /// Kernels that failed verification; they are not timed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wrong: Vec<Wrong>,
    /// Duration in seconds, the host's work included.
    #[serde(default)]
    pub seconds: f64,
}

/// A kernel that failed verification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wrong {
    /// The work, with its size.
    pub what: String,
    /// The error.
    pub why: String,
}

impl RecordKind for FusedReport {
    const KIND: &'static str = "gpu-fused";
    const VERSION: u32 = 2;
}

/// One kernel in compressed memory and one in plain memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FusedRow {
    /// The work, with its size.
    pub what: String,
    /// Tokens of a linear layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u32>,
    /// Codecs and target of the compressed memory.
    pub memory: String,
    /// Microseconds in compressed memory.
    pub fused_us: f64,
    /// Microseconds with programmatic dependent launch, if the kernel supports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlapped_us: Option<f64>,
    /// The kernel or library it is compared with.
    pub against: String,
    /// Microseconds of that kernel or library.
    pub against_us: f64,
    /// Microseconds of the same kernel on plain memory; for the stencil, of a kernel with tiles.
    pub twin_us: f64,
    /// The same with programmatic dependent launch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub twin_overlapped_us: Option<f64>,
    /// Bytes that must move in compressed memory, with metadata.
    pub fused_bytes: u64,
    /// Bytes that must move in plain memory.
    pub plain_bytes: u64,
    /// Fraction of memory bandwidth that the compressed bytes reach.
    pub of_memory: f64,
    /// Share of entries that overflow.
    pub overflow: f64,
    /// The resource that limits the kernel.
    pub limiter: String,
}

impl FusedRow {
    /// Returns the speedup over the kernel it is compared with.
    pub fn ratio(&self) -> f64 {
        self.against_us / self.fused_us
    }

    /// Returns the fraction of the traffic that compression saves.
    pub fn saved(&self) -> f64 {
        1.0 - self.fused_bytes as f64 / self.plain_bytes as f64
    }
}

/// The shapes of all kernels. The defaults were the fastest on an H200.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Shapes {
    /// Block shape of the stencil.
    pub stencil: StencilShape,
    /// Rows per warp of the sparse product.
    pub spmv: SpmvShape,
}

impl Shapes {
    fn check(self) -> Result<(), Error> {
        self.stencil.check().and(self.spmv.check())
    }

    /// The program of each example.
    pub(crate) fn sources(self) -> Vec<Source> {
        let examples = [Example::Stencil, Example::Spmv, Example::Linear];
        examples.into_iter().flat_map(|example| self.sources_of(example)).collect()
    }

    /// The laboratory's programs of one example.
    fn sources_of(self, example: Example) -> Vec<Source> {
        match example {
            Example::Stencil => self.stencil.sources().to_vec(),
            Example::Spmv => self.spmv.sources().to_vec(),
            Example::Linear => vec![linear::source()],
        }
    }
}

/// The kernels that are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Example {
    /// A 7-point stencil over doubles, from compressed to compressed memory.
    Stencil,
    /// The product of a sparse matrix in CSR form and a vector.
    Spmv,
    /// Linear layers from frozen weights.
    Linear,
}

/// Verifies and measures examples; `progress` receives the report after each row. A kernel whose
/// result in compressed memory differs from that in plain memory, or that fails, is listed in
/// [`wrong`](FusedReport::wrong); the others are measured all the same.
///
/// # Errors
/// Compiler and driver errors before the first measurement.
pub fn fused(
    gpu: &Gpu,
    examples: &[Example],
    mut progress: impl FnMut(&FusedReport),
) -> Result<FusedReport, Error> {
    let start = Instant::now();
    let shapes = Shapes::default();
    // A GPU that is too old for one of them is rejected before any measurement.
    let mut sources = examples.iter().flat_map(|&example| shapes.sources_of(example));
    sources.try_for_each(|source| gpu.module(&source).map(drop))?;
    let (info, lab) = (gpu.info()?, Lab::new(gpu)?);
    let speeds = Speeds::measure(&lab)?;
    let Speeds { read_gb_per_s, copy_gb_per_s } = speeds;
    let (rows, wrong) = (Vec::new(), Vec::new());
    let mut report = FusedReport {
        gpu: info.name,
        driver: info.driver,
        read_gb_per_s,
        copy_gb_per_s,
        shapes,
        rows,
        wrong,
        seconds: 0.0,
    };
    for example in examples {
        let mut add = |found: Result<FusedRow, Wrong>| {
            match found {
                Ok(row) => report.rows.push(row),
                Err(wrong) => report.wrong.push(wrong),
            }
            report.seconds = start.elapsed().as_secs_f64();
            progress(&report);
        };
        let done = match example {
            Example::Stencil => stencil::measure(&lab, speeds, shapes.stencil).map(|row| add(Ok(row))),
            Example::Spmv => spmv::measure(&lab, speeds, shapes.spmv, &mut |row| add(Ok(row))),
            Example::Linear => linear::measure(&lab, speeds, &mut add),
        };
        if let Err(error) = done {
            add(Err(Wrong { what: format!("{example:?}").to_lowercase(), why: error.to_string() }));
        }
    }
    Ok(report)
}

/// Verifies and measures one example at one shape, without cuBLASLt: to choose shapes.
///
/// # Errors
/// As for [`fused()`].
pub fn tune(gpu: &Gpu, example: Example, shapes: Shapes) -> Result<Vec<FusedRow>, Error> {
    shapes.check()?;
    let lab = Lab::new(gpu)?;
    let speeds = Speeds::measure(&lab)?;
    let mut rows = Vec::new();
    match example {
        Example::Stencil => rows.push(stencil::measure(&lab, speeds, shapes.stencil)?),
        Example::Spmv => spmv::measure(&lab, speeds, shapes.spmv, &mut |row| rows.push(row))?,
        // Its shapes are the library's own.
        Example::Linear => linear::measure(&lab, speeds, &mut |found| rows.extend(found))?,
    }
    Ok(rows)
}

/// Bandwidth of plain memory, in 10^9 bytes a second.
#[derive(Debug, Clone, Copy)]
struct Speeds {
    read_gb_per_s: f64,
    copy_gb_per_s: f64,
}

impl Speeds {
    fn measure(lab: &Lab) -> Result<Self, Error> {
        let (a, b, count) = (lab.bytes(PROBE)?, lab.bytes(PROBE)?, lab.bytes(8)?);
        a.fill(0x5a)?;
        let read_us = lab.time(4, |_| lab.read_all(a.all(), count.all()))?;
        let copy_us = lab.time(4, |_| lab.copy(a.all(), b.all()))?;
        let gb_per_s = |us| PROBE as f64 / us / 1e3;
        Ok(Self { read_gb_per_s: gb_per_s(read_us), copy_gb_per_s: 2.0 * gb_per_s(copy_us) })
    }
}

/// Returns name and time of the faster plain kernel.
fn fastest_plain(simple_us: f64, twin_us: f64) -> (String, f64) {
    match simple_us < twin_us {
        true => ("a simple plain kernel".to_owned(), simple_us),
        false => (TWIN.to_owned(), twin_us),
    }
}
