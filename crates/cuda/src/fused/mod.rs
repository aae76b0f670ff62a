//! Kernels that work in compressed memory, beside the same work in plain memory, in one run: the examples of
//! `buddy_device.cuh`, verified and measured.

mod lab;
mod product;
mod spmv;
mod stencil;

use buddy_core::RecordKind;
use serde::{Deserialize, Serialize};

pub use product::ProductShape;
pub use spmv::SpmvShape;
pub use stencil::StencilShape;

use crate::{Error, Gpu, Source};
use lab::Lab;

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FusedReport {
    /// The GPU's name.
    pub gpu: String,
    /// CUDA version of its driver.
    pub driver: u32,
    /// 10^9 bytes a second that a kernel reads and keeps nothing of.
    pub read_gb_per_s: f64,
    /// The same for a copy, bytes read and written.
    pub copy_gb_per_s: f64,
    /// The shapes of the kernels.
    pub shapes: Shapes,
    /// The measurements.
    pub rows: Vec<FusedRow>,
}

impl RecordKind for FusedReport {
    const KIND: &'static str = "gpu-fused";
    const VERSION: u32 = 1;
}

/// One kernel in compressed memory and one in plain memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FusedRow {
    /// The work.
    pub what: String,
    /// Codecs and target of the compressed memory.
    pub memory: String,
    /// Microseconds in compressed memory.
    pub fused_us: f64,
    /// The same where each launch may begin while the one before it ends, if the kernel knows how to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlapped_us: Option<f64>,
    /// What it is compared with.
    pub against: String,
    /// Microseconds of that.
    pub against_us: f64,
    /// Microseconds of the same kernel with plain memory.
    pub twin_us: f64,
    /// Bytes that must move in compressed memory, metadata and all.
    pub fused_bytes: u64,
    /// Bytes that must move in plain memory.
    pub plain_bytes: u64,
    /// Time that the bytes in compressed memory would take at the speed of memory, as a share of the time taken.
    pub of_memory: f64,
    /// Share of entries that overflow.
    pub overflow: f64,
    /// What keeps the kernel from being faster.
    pub limiter: String,
}

impl FusedRow {
    /// How many times as fast as what it is compared with.
    pub fn ratio(&self) -> f64 {
        self.against_us / self.fused_us
    }

    /// Share of the traffic that compressed memory saves.
    pub fn saved(&self) -> f64 {
        1.0 - self.fused_bytes as f64 / self.plain_bytes as f64
    }
}

/// The shapes of all kernels: how work is cut. The defaults were the best on an H200.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Shapes {
    /// Of the stencil.
    pub stencil: StencilShape,
    /// Of the sparse product.
    pub spmv: SpmvShape,
    /// Of the product.
    pub product: ProductShape,
}

impl Shapes {
    fn check(self) -> Result<(), Error> {
        self.stencil.check().and(self.spmv.check()).and(self.product.check())
    }

    fn source(self, example: Example) -> Source {
        match example {
            Example::Stencil => self.stencil.source(),
            Example::Spmv => self.spmv.source(),
            Example::Product => self.product.source(),
        }
    }
}

/// One of the examples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Example {
    /// The 7-point stencil.
    Stencil,
    /// The sparse product.
    Spmv,
    /// The product with bf16 weights.
    Product,
}

/// Verifies and measures examples; `progress` hears of each row.
///
/// # Errors
/// [`Error::Differs`] if a kernel in compressed memory gives another result than one in plain memory, or what compiler
/// or driver say.
pub fn fused(
    gpu: &Gpu,
    examples: &[Example],
    mut progress: impl FnMut(&FusedRow),
) -> Result<FusedReport, Error> {
    let shapes = Shapes::default();
    examples.iter().try_for_each(|example| gpu.runs(&shapes.source(*example)))?;
    let (info, lab) = (gpu.info()?, Lab::new(gpu)?);
    let mut rows = Vec::new();
    let mut add = |row: FusedRow| {
        progress(&row);
        rows.push(row);
    };
    for example in examples {
        match example {
            Example::Stencil => add(stencil::measure(&lab, shapes.stencil)?),
            Example::Spmv => spmv::measure(&lab, shapes.spmv, &mut add)?,
            Example::Product => product::measure(&lab, shapes.product, &mut add)?,
        }
    }
    Ok(FusedReport {
        gpu: info.name,
        driver: info.driver,
        read_gb_per_s: lab.read_gb_per_s,
        copy_gb_per_s: lab.copy_gb_per_s,
        shapes,
        rows,
    })
}

/// Verifies and measures one example at one shape, without the vendor's library: to choose shapes with.
///
/// # Errors
/// As for [`fused`].
pub fn tune(gpu: &Gpu, example: Example, shapes: Shapes) -> Result<Vec<FusedRow>, Error> {
    shapes.check()?;
    let lab = Lab::new(gpu)?;
    let mut rows = Vec::new();
    match example {
        Example::Stencil => rows.push(stencil::measure(&lab, shapes.stencil)?),
        Example::Spmv => spmv::measure(&lab, shapes.spmv, &mut |row| rows.push(row))?,
        Example::Product => product::tune(&lab, shapes.product, &mut |row| rows.push(row))?,
    }
    Ok(rows)
}

/// The programs.
pub(crate) fn sources() -> [Source; 3] {
    [Example::Stencil, Example::Spmv, Example::Product].map(|example| Shapes::default().source(example))
}
