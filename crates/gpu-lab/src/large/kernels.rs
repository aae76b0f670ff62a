//! The program of the wave, and its kernels' arguments.

use std::sync::Arc;

use buddy_cuda::{Arguments, CudaStream, Gpu, Launch, Source};
use cudarc::driver::{CudaModule, DeviceRepr, sys::CUfunction_attribute};

use super::model::{Grid, LAYER, TILE, VELOCITIES};
use crate::{Error, lab::program};

/// Planes that a block traverses, in compressed and in plain memory. With more planes, fewer are
/// read twice.
pub(super) const PLANES: u32 = 64;
pub(super) const PLAIN_PLANES: u32 = 128;
/// Threads of a block in a step.
pub(super) const THREADS: u32 = 256;
/// Bytes of a unit, units of a page, and bricks of a page.
pub(super) const UNIT: u64 = 1024;
pub(super) const UNITS: u64 = 8;
pub(super) const BRICKS: u64 = 64;
/// Numbers of the table: velocities, and damping factors by depth.
pub(super) const TABLE: u32 = (VELOCITIES + LAYER + 1) as u32;

/// Two planes of a column with its halo.
const RIMMED: u32 = 2 * 4 * (TILE.0 + 8) * (TILE.1 + 8);
/// Shared memory of a block: planes, two stages of bricks, the halo, kinds and places, the table.
const fn packed_shared(planes: u32) -> u32 {
    let pages = 128 * (planes + 8) + (289 * planes).next_multiple_of(16);
    (RIMMED + 2 * 8192 + 16 * THREADS + pages + 4 * TABLE).next_multiple_of(16)
}
/// Planes, three stages of rows, a halo, the damping.
const PLAIN_SHARED: u32 = (RIMMED + 3 * 8192 + 192 * 16 + 4 * (LAYER as u32 + 1)).next_multiple_of(16);

/// Returns the program, compiled without contraction, so that results equal the CPU's bit for bit.
pub(crate) fn source() -> Source {
    let source = program("wave.cu", include_str!("../../kernels/wave.cu"), &defines(PLANES, PLAIN_PLANES));
    // Two blocks per SM with this shared memory need Hopper or later.
    Source { least: 90, extra: &["--fmad=false"], ..source }
}

/// Macros of the program; `planes` is the planes per block.
pub(super) fn defines(planes: u32, plain_planes: u32) -> Vec<String> {
    vec![
        format!("BUDDY_WAVE_LAYER={LAYER}"),
        format!("BUDDY_WAVE_PLANES={planes}"),
        format!("BUDDY_WAVE_PLAIN_PLANES={plain_planes}"),
        format!("BUDDY_WAVE_PACKED_SHARED={}", packed_shared(planes)),
        format!("BUDDY_WAVE_PLAIN_SHARED={PLAIN_SHARED}"),
    ]
}

/// The struct `Step`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Step {
    pub(super) cells: [i32; 3],
    pub(super) push: f32,
    fault: u64,
}

impl Step {
    pub(super) fn new(grid: Grid, fault: u64) -> Self {
        let Grid { x, y, z } = grid;
        Self { cells: [x, y, z].map(|n| n as i32), push: 0.0, fault }
    }

    /// Returns the cells of a plane.
    pub(super) fn plane(&self) -> u64 {
        self.cells[0] as u64 * self.cells[1] as u64
    }
}

/// The struct `State`: addresses of a field's references, kinds and marks.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct FieldView {
    pub(super) refs: u64,
    pub(super) kinds: u64,
    pub(super) active: u64,
}

/// The struct `Pool`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct PoolView {
    pub(super) device: u64,
    pub(super) host: u64,
}

/// The struct `Slab`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Slab {
    pub(super) u: u64,
    pub(super) w: u64,
    pub(super) squares: u64,
    pub(super) first: i32,
    pub(super) planes: i32,
    pub(super) below: i32,
    pub(super) above: i32,
}

/// The struct `Slice`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Slice {
    pub(super) y: i32,
    pub(super) by: i32,
    pub(super) width: i32,
    pub(super) height: i32,
}

/// The struct `Grid`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Dims(pub(super) [i32; 3]);

// SAFETY: plain numbers in C layout, as in `stencil_cells.cuh`, `stencil_pages.cuh`, `wave_model.cuh`,
// `wave_plain.cuh` and `wave.cu`.
unsafe impl DeviceRepr for Step {}
// SAFETY: likewise.
unsafe impl DeviceRepr for FieldView {}
// SAFETY: likewise.
unsafe impl DeviceRepr for PoolView {}
// SAFETY: likewise.
unsafe impl DeviceRepr for Slab {}
// SAFETY: likewise.
unsafe impl DeviceRepr for Slice {}
// SAFETY: likewise.
unsafe impl DeviceRepr for Dims {}

/// The loaded program.
pub(super) struct WaveKernels {
    gpu: Gpu,
    module: Arc<CudaModule>,
}

impl WaveKernels {
    pub(super) fn new(gpu: &Gpu) -> Result<Self, Error> {
        let kernels = Self { gpu: gpu.clone(), module: gpu.module(&source())? };
        for name in ["wave_plain", "wave_raw", "wave_window"] {
            let all = CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
            let set = kernels.module.load_function(name).and_then(|kernel| kernel.set_attribute(all, 100));
            gpu.check("give a kernel its shared memory", set)?;
        }
        Ok(kernels)
    }

    /// Enqueues a kernel.
    ///
    /// # Safety
    /// As for [`Launch::start`].
    pub(super) unsafe fn start(
        &self,
        stream: &CudaStream,
        name: &str,
        launch: Launch,
        arguments: &impl Arguments,
    ) -> Result<(), Error> {
        let kernel = self.module.load_function(name);
        // SAFETY: the caller's promise.
        let started = kernel.and_then(|kernel| unsafe { launch.start(stream, &kernel, arguments) });
        Ok(self.gpu.check("start a kernel of the wave", started)?)
    }
}

/// One block per column and run of planes.
pub(super) fn plain_launch(grid: Grid, planes: u32) -> Launch {
    Launch::new((tiles(grid), planes.div_ceil(PLAIN_PLANES)), THREADS, PLAIN_SHARED)
}

/// The same in compressed memory.
pub(super) fn packed_launch(grid: Grid) -> Launch {
    Launch::new((tiles(grid), grid.z.div_ceil(PLANES)), THREADS, packed_shared(PLANES))
}

/// Launch with one block per page of `planes` planes.
pub(super) fn page_launch(grid: Grid, planes: u32) -> Launch {
    Launch::new((tiles(grid), planes), THREADS, 0)
}

/// Launch with one thread per item.
pub(super) fn row(count: u64) -> Launch {
    Launch::row(count.div_ceil(256), 256)
}

/// Returns the columns of a grid.
pub(super) fn tiles(grid: Grid) -> u32 {
    grid.x / TILE.0 * (grid.y / TILE.1)
}

/// Returns the pages of a field.
pub(super) fn pages(grid: Grid) -> u64 {
    u64::from(tiles(grid)) * u64::from(grid.z)
}
