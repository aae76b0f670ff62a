//! The 7-point stencil (`kernels/stencil.cu`): a field of doubles read from and written to
//! compressed memory.

use buddy_codec::CodecKind;
use buddy_core::Target;
use buddy_cuda::{Allocation, Launch, Source};
use serde::{Deserialize, Serialize};

use super::{FusedRow, Speeds};
use crate::{
    Error, Fill, Lab,
    lab::{at, device_struct, moved_bytes, overflow, program},
};

/// Block shape of the stencil.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StencilShape {
    /// Rows per thread.
    pub deep: u32,
    /// Threads per block, 128 per row; the first and the last row are only read.
    pub threads: u32,
    /// Planes that a block traverses.
    pub planes: u32,
}

impl Default for StencilShape {
    fn default() -> Self {
        Self { deep: 2, threads: 640, planes: 256 }
    }
}

impl StencilShape {
    pub(super) fn check(self) -> Result<(), Error> {
        let rows = self.rows();
        let possible = self.threads.is_multiple_of(QUADS) && self.threads <= 1024 && (3..=12).contains(&rows);
        let why = "threads in multiples of 128 to 1024, 3 to 12 rows of them, 1 to 512 planes";
        let possible = possible && (1..=PLANES).contains(&self.planes);
        possible.then_some(()).ok_or(Error::Cut { of: "stencil", why })
    }

    /// Returns the program for compressed memory, and its fastest plain counterpart.
    pub(super) fn sources(self) -> [Source; 2] {
        let defines =
            [format!("BUDDY_STENCIL_DEEP={}", self.deep), format!("BUDDY_STENCIL_THREADS={}", self.threads)];
        let warps = [format!("BUDDY_TILES_WARPS={TILES_WARPS}")];
        [
            program("stencil.cu", include_str!("../../kernels/stencil.cu"), &defines),
            program("stencil_tiles.cu", include_str!("../../kernels/stencil_tiles.cu"), &warps),
        ]
    }

    fn rows(self) -> u32 {
        self.threads / QUADS * self.deep
    }

    /// Each thread has, for each of its rows, 16 bytes in flight and 32 bytes of cells of three
    /// planes.
    fn launch(self) -> Launch {
        let shared = 3 * self.rows() * QUADS * (16 + 32);
        Launch::new((ROWS.div_ceil(self.rows() - 2), PLANES.div_ceil(self.planes)), self.threads, shared)
    }
}

const CELLS: u32 = 512;
/// Threads per row.
const QUADS: u32 = CELLS / 4;
const ROWS: u32 = 512;
const PLANES: u32 = 512;
/// Planes per block of the simple kernel, which has 1024 threads and 4 rows.
const SIMPLE_PLANES: u32 = 64;
/// Warps and planes per block of the plain kernel with tiles: the fastest on an H200.
const TILES_WARPS: u32 = 18;
const TILES_PLANES: u32 = 128;

device_struct!(Grid { rows: u32, planes: u32, planes_per_block: u32 });

pub(super) fn measure(lab: &Lab, speeds: Speeds, shape: StencilShape) -> Result<FusedRow, Error> {
    let [kernels, by_tiles] = shape.sources().map(|source| lab.kernels(&source));
    let (kernels, by_tiles) = (kernels?, by_tiles?);
    let bytes = u64::from(CELLS) * u64::from(ROWS) * u64::from(PLANES) * 8;
    let (from, expected, plain) = (lab.bytes(bytes)?, lab.bytes(bytes)?, lab.bytes(bytes)?);
    lab.make(from.all(), Fill::Field64, 1, 0.0)?;
    let source = lab.compress(CodecKind::Near64, Target::X2, from.all())?;
    let result = Allocation::new(&lab.gpu, bytes, Target::X2, CodecKind::Near64.train(&[]))?;
    let (source, result) = (source.buffer(), result.buffer());
    let grid = |planes_per_block| Grid { rows: ROWS, planes: PLANES, planes_per_block };
    let simple = Launch::new((ROWS / 4, PLANES / SIMPLE_PLANES), 1024, 0);
    // Three tiles of 4 KiB per warp.
    let blocks = (ROWS.div_ceil(TILES_WARPS - 2), PLANES.div_ceil(TILES_PLANES));
    let tiles = Launch::new(blocks, 32 * TILES_WARPS, 3 * 4096 * TILES_WARPS);
    // SAFETY: the arguments of the three kernels; fields and buffers have the grid's cells.
    let run_simple = |_| unsafe {
        kernels.start("stencil_simple", simple, &(at(&from), at(&expected), grid(SIMPLE_PLANES)))
    };
    // SAFETY: likewise.
    let run_tiles =
        |_| unsafe { by_tiles.start("stencil_tiles", tiles, &(at(&from), at(&plain), grid(TILES_PLANES))) };
    // SAFETY: likewise; both buffers have the kernel's codec and, on every page, its target.
    let run_fused = |_| unsafe {
        kernels.start("stencil_fused", shape.launch(), &(source.view(), result.view(), grid(shape.planes)))
    };
    run_simple(0)?;
    plain.fill(0xee)?;
    run_tiles(0)?;
    lab.same("stencil in plain memory", expected.all(), plain.all())?;
    run_fused(0)?;
    plain.fill(0xee)?;
    lab.describe(source)?;
    lab.describe(result)?;
    result.read(&lab.stream, 0, plain.all())?;
    lab.same("stencil", expected.all(), plain.all())?;
    let (simple_us, tiles_us) = (lab.time(4, run_simple)?, lab.time(4, run_tiles)?);
    let fused_us = lab.time(4, run_fused)?;
    let (against, against_us) = match simple_us < tiles_us {
        true => ("a simple plain kernel", simple_us),
        false => ("a plain kernel by tiles", tiles_us),
    };
    let fused_bytes = [source, result].into_iter().map(moved_bytes).sum::<u64>();
    Ok(FusedRow {
        what: format!("7-point stencil, fp64, {CELLS} x {ROWS} x {PLANES}"),
        tokens: None,
        memory: "near64 at 2x, read and written".to_owned(),
        fused_us,
        overlapped_us: None,
        against: against.to_owned(),
        against_us,
        twin_us: tiles_us,
        twin_overlapped_us: None,
        fused_bytes,
        plain_bytes: 2 * bytes,
        of_memory: fused_bytes as f64 / speeds.copy_gb_per_s / 1e3 / fused_us,
        overflow: overflow(source).max(overflow(result)),
        limiter: "shared memory".to_owned(),
    })
}
