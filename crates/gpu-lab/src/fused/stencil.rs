//! The 7-point stencil (`kernels/examples/stencil.cu`): a field of doubles read from and written to compressed memory.

use buddy_codec::CodecKind;
use buddy_core::Target;
use buddy_cuda::{Allocation, Launch, Source};
use serde::{Deserialize, Serialize};

use super::{FusedRow, Speeds, device_struct, fastest_plain};
use crate::{
    Error, Fill, Lab,
    lab::{at, moved_bytes, overflow, program},
};

/// How the stencil is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StencilShape {
    /// Warps of a block; two of them only bring in rows for the others.
    pub warps: u32,
    /// Planes that a block walks through.
    pub planes: u32,
}

impl Default for StencilShape {
    fn default() -> Self {
        Self { warps: 18, planes: 128 }
    }
}

impl StencilShape {
    pub(super) fn check(self) -> Result<(), Error> {
        let possible = (3..=18).contains(&self.warps) && (1..=PLANES).contains(&self.planes);
        possible.then_some(()).ok_or(Error::Cut { of: "stencil", why: "3 to 18 warps, 1 to 512 planes" })
    }

    pub(super) fn source(self) -> Source {
        let defines = [format!("BUDDY_STENCIL_WARPS={}", self.warps)];
        program("stencil.cu", include_str!("../../kernels/stencil.cu"), &defines)
    }

    fn launch(self) -> Launch {
        // Three tiles of 4 KiB to a warp.
        let shared = 3 * 4096 * self.warps;
        let blocks = (ROWS.div_ceil(self.warps - 2), PLANES.div_ceil(self.planes));
        Launch::new(blocks, 32 * self.warps, shared)
    }
}

const CELLS: u32 = 512;
const ROWS: u32 = 512;
const PLANES: u32 = 512;

device_struct!(Grid { rows: u32, planes: u32, planes_per_block: u32 });

pub(super) fn measure(lab: &Lab, speeds: Speeds, shape: StencilShape) -> Result<FusedRow, Error> {
    let kernels = lab.kernels(&shape.source())?;
    let bytes = u64::from(CELLS) * u64::from(ROWS) * u64::from(PLANES) * 8;
    let (from, expected, plain) = (lab.bytes(bytes)?, lab.bytes(bytes)?, lab.bytes(bytes)?);
    lab.make(from.all(), Fill::Field64, 1, 0.0)?;
    let source = lab.compress(CodecKind::Planes64, Target::X2, from.all())?;
    let result = Allocation::new(&lab.gpu, bytes, Target::X2, CodecKind::Planes64.train(&[]))?;
    let (source, result) = (source.buffer(), result.buffer());
    let grid = Grid { rows: ROWS, planes: PLANES, planes_per_block: shape.planes };
    let simple = Launch::new((ROWS, PLANES), CELLS / 2, 0);
    // SAFETY: the arguments of the three kernels; fields and buffers have the grid's cells.
    let run_simple =
        |_| unsafe { kernels.start("stencil_simple", simple, &(at(&from), at(&expected), grid)) };
    // SAFETY: likewise.
    let run_twin =
        |_| unsafe { kernels.start("stencil_plain", shape.launch(), &(at(&from), at(&plain), grid)) };
    // SAFETY: likewise, and both buffers have the kernel's codec.
    let run_fused =
        |_| unsafe { kernels.start("stencil_fused", shape.launch(), &(source.view(), result.view(), grid)) };
    run_simple(0)?;
    plain.fill(0xee)?;
    run_twin(0)?;
    lab.same("stencil in plain memory", expected.all(), plain.all())?;
    run_fused(0)?;
    plain.fill(0xee)?;
    lab.describe(source)?;
    lab.describe(result)?;
    result.read(&lab.stream, 0, plain.all())?;
    lab.same("stencil", expected.all(), plain.all())?;
    let (simple_us, twin_us) = (lab.time(4, run_simple)?, lab.time(4, run_twin)?);
    let fused_us = lab.time(4, run_fused)?;
    let (against, against_us) = fastest_plain(simple_us, twin_us);
    let fused_bytes = [source, result].into_iter().map(moved_bytes).sum::<u64>();
    Ok(FusedRow {
        what: format!("7-point stencil, fp64, {CELLS} x {ROWS} x {PLANES}"),
        memory: "planes64 at 2x, read and written".to_owned(),
        fused_us,
        overlapped_us: None,
        against,
        against_us,
        twin_us,
        fused_bytes,
        plain_bytes: 2 * bytes,
        of_memory: fused_bytes as f64 / speeds.copy_gb_per_s / 1e3 / fused_us,
        overflow: overflow(source).max(overflow(result)),
        limiter: "instructions".to_owned(),
    })
}
