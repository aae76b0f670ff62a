//! Conjugate gradients with a sparse matrix in kernel layouts (`kernels/cg.cu`), also beyond the
//! size of device memory: one implicit step of heat conduction in a cube. If the plain matrix fits,
//! it is solved with that too, and compared.

use std::time::Instant;

use buddy_cuda::{DeviceBytes, Gpu, Launch, Source};
use buddy_record::RecordKind;
use serde::{Deserialize, Serialize};

use crate::{
    Error, Lab,
    lab::{Kernels, at, device_struct, program},
    matrix::{MATRIX_ENTRY, OffsetColumns, TableValues},
};

/// Elements of a row.
const ROW: u64 = 27;
/// The matrix's values by index in the table.
const VALUES: [f64; 3] = [0.0, -1.0, 27.0];
/// Threads per block, one row each, and blocks per SM. On an H200 9 blocks of the packed product
/// are resident per SM, and 5 of the plain one, so that both end in whole waves.
const BLOCK: u32 = 128;
const BLOCKS: u32 = 45;
/// Elements that a block loads at once.
const TILE: u64 = BLOCK as u64 * ROW;
/// Cells per side; columns are below 2^31.
pub const CG_CELLS: std::ops::RangeInclusive<u32> = 4..=1290;
/// Device memory reserved for the driver and the kernels, in bytes.
const RESERVE: u64 = 1 << 30;

/// A system to solve, and the stopping criterion.
#[derive(Debug, Clone, Copy)]
pub struct CgAsk {
    /// Cells of the cube's side.
    pub n: u32,
    /// The residual relative to the right-hand side's norm at which the solver stops.
    pub tolerance: f64,
    /// Maximum number of iterations.
    pub iterations: u32,
}

/// The solution of one system, timed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CgReport {
    /// The vendor's name for the GPU.
    pub gpu: String,
    /// CUDA version of its driver.
    pub driver: u32,
    /// Device memory.
    pub memory_bytes: u64,
    /// Cells of the cube's side.
    pub n: u32,
    /// Elements of the matrix.
    pub elements: u64,
    /// Requested residual.
    pub tolerance: f64,
    /// Bytes of matrix and vectors, uncompressed.
    pub plain_bytes: u64,
    /// Bytes of packed matrix and plain vectors.
    pub packed_bytes: u64,
    /// Run with the packed matrix.
    pub packed: CgRun,
    /// Run with the plain matrix, if it fits. Both solutions are bit-identical.
    pub plain: Option<CgRun>,
}

impl RecordKind for CgReport {
    const KIND: &'static str = "gpu-cg";
    const VERSION: u32 = 1;
}

impl CgReport {
    /// Returns the speedup over the plain matrix.
    pub fn ratio(&self) -> Option<f64> {
        self.plain.as_ref().map(|plain| plain.ms_per_iteration / self.packed.ms_per_iteration)
    }
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CgRun {
    /// Iterations.
    pub iterations: u32,
    /// Milliseconds per iteration, with all kernels and the convergence test.
    pub ms_per_iteration: f64,
    /// The solver's residual, relative to the right-hand side's norm.
    pub residual: f64,
    /// |b - Ax| relative to |b|, with A computed from its definition instead of its storage.
    pub true_residual: f64,
    /// 10^9 bytes per second, counting those that must move.
    pub gb_per_s: f64,
}

device_struct!(Cube { n: u32 });

/// Sizes derived from the cube.
impl Cube {
    fn rows(self) -> u64 {
        u64::from(self.n).pow(3)
    }

    /// Returns the elements, rounded up to a whole tile.
    fn elements(self) -> u64 {
        (self.rows() * ROW).next_multiple_of(TILE)
    }

    fn vector_bytes(self) -> u64 {
        (self.rows() * 8).next_multiple_of(128)
    }

    fn packed_bytes(self) -> u64 {
        4 * self.elements() + 4 * self.elements() / u64::from(MATRIX_ENTRY)
    }

    fn plain_bytes(self) -> u64 {
        12 * self.elements()
    }
}

/// The program.
pub(crate) fn source() -> Source {
    program("cg.cu", include_str!("../kernels/cg.cu"), &[])
}

/// Solves with the packed matrix, and with the plain one if it fits; `progress` receives each
/// iteration's residual.
///
/// # Errors
/// [`Error::Differs`] if the solutions differ, [`Error::Diverges`] if the residual is not reached
/// or not true, or an error of the compiler or the driver.
pub fn cg(gpu: &Gpu, ask: CgAsk, mut progress: impl FnMut(u32, f64)) -> Result<CgReport, Error> {
    if !CG_CELLS.contains(&ask.n) {
        return Err(Error::Cut { of: "cube", why: "4 to 1290 cells a side" });
    }
    let (info, lab, cube) = (gpu.info()?, Lab::new(gpu)?, Cube { n: ask.n });
    let solver = Solver::new(&lab, cube)?;
    let packed = solver.solve(&Packed::new(&solver)?, ask, &mut progress)?;
    let room = gpu.info()?.free_bytes.saturating_sub(RESERVE);
    let plain = match cube.plain_bytes() + cube.vector_bytes() <= room {
        false => None,
        true => {
            let kept = lab.bytes(cube.vector_bytes())?;
            lab.copy(solver.x.all(), kept.all())?;
            let plain = solver.solve(&Plain::new(&solver)?, ask, &mut progress)?;
            lab.same("conjugate gradients", kept.all(), solver.x.all())?;
            Some(plain)
        }
    };
    let vectors = 4 * cube.vector_bytes();
    Ok(CgReport {
        gpu: info.name,
        driver: info.driver,
        memory_bytes: info.memory_bytes,
        n: ask.n,
        elements: cube.rows() * ROW,
        tolerance: ask.tolerance,
        plain_bytes: cube.plain_bytes() + vectors,
        packed_bytes: cube.packed_bytes() + vectors,
        packed,
        plain,
    })
}

/// A matrix that multiplies a vector.
trait Matrix {
    /// Returns the bytes of the matrix.
    fn bytes(&self) -> u64;
    /// Enqueues q = A p.
    fn multiply(&self, solver: &Solver<'_>) -> Result<(), Error>;
}

struct Packed {
    places: DeviceBytes,
    table: DeviceBytes,
    low: DeviceBytes,
    high: DeviceBytes,
    bases: DeviceBytes,
}

impl Packed {
    fn new(solver: &Solver<'_>) -> Result<Self, Error> {
        let (lab, elements) = (solver.lab, solver.cube.elements());
        let [places, low, high] = [1, 2, 1].map(|bytes| lab.bytes(bytes * elements));
        let (table, bases) = (lab.bytes(256 * 8)?, lab.bytes(4 * elements / u64::from(MATRIX_ENTRY))?);
        let packed = Self { places: places?, table, low: low?, high: high?, bases };
        // The last tile may extend beyond the last row.
        [&packed.places, &packed.low, &packed.high, &packed.bases, &packed.table]
            .iter()
            .try_for_each(|array| array.fill(0))?;
        packed.table.upload(&VALUES.map(f64::to_le_bytes).concat())?;
        let launch = Launch::row((elements / u64::from(MATRIX_ENTRY)).div_ceil(64), 64);
        // SAFETY: the arguments of the kernel, with memory for every entry.
        let far = lab.count(|count| unsafe {
            let arguments = (solver.cube, packed.values(), packed.columns(), count.address());
            solver.kernels.start("cg_make_packed", launch, &arguments)
        })?;
        if far > 0 {
            return Err(Error::Cut {
                of: "packed matrix",
                why: "its columns must lie within 2^24 of each other",
            });
        }
        Ok(packed)
    }

    fn values(&self) -> TableValues {
        TableValues { places: at(&self.places), table: at(&self.table) }
    }

    fn columns(&self) -> OffsetColumns {
        // All entries fit the layout.
        OffsetColumns { low: at(&self.low), high: at(&self.high), bases: at(&self.bases), others: 0 }
    }
}

impl Matrix for Packed {
    fn bytes(&self) -> u64 {
        [&self.places, &self.low, &self.high, &self.bases].iter().map(|array| array.len()).sum()
    }

    fn multiply(&self, solver: &Solver<'_>) -> Result<(), Error> {
        let [p, q, partial] = [&solver.p, &solver.q, &solver.partial].map(at);
        let arguments = (self.values(), self.columns(), solver.cube, p, q, partial);
        // SAFETY: the arguments of the kernel, with memory for the matrix and the vectors.
        unsafe { solver.kernels.start("cg_product_packed", solver.launch, &arguments) }
    }
}

struct Plain {
    values: DeviceBytes,
    columns: DeviceBytes,
}

impl Plain {
    fn new(solver: &Solver<'_>) -> Result<Self, Error> {
        let elements = solver.cube.elements();
        let plain =
            Self { values: solver.lab.bytes(8 * elements)?, columns: solver.lab.bytes(4 * elements)? };
        plain.values.fill(0)?;
        plain.columns.fill(0)?;
        let arguments = (solver.cube, at(&plain.values), at(&plain.columns));
        // SAFETY: the arguments of the kernel, with memory for every element.
        unsafe {
            solver.kernels.start("cg_make_plain", Launch::row(elements.div_ceil(256), 256), &arguments)?
        };
        Ok(plain)
    }
}

impl Matrix for Plain {
    fn bytes(&self) -> u64 {
        self.values.len() + self.columns.len()
    }

    fn multiply(&self, solver: &Solver<'_>) -> Result<(), Error> {
        let [p, q, partial] = [&solver.p, &solver.q, &solver.partial].map(at);
        let arguments = (at(&self.values), at(&self.columns), solver.cube, p, q, partial);
        // SAFETY: the arguments of the kernel, with memory for the matrix and the vectors.
        unsafe { solver.kernels.start("cg_product_plain", solver.launch, &arguments) }
    }
}

/// The vectors, and the scalars of an iteration, which stay on the GPU.
struct Solver<'a> {
    lab: &'a Lab,
    kernels: Kernels,
    cube: Cube,
    launch: Launch,
    x: DeviceBytes,
    r: DeviceBytes,
    p: DeviceBytes,
    q: DeviceBytes,
    partial: DeviceBytes,
    /// r.r, p.Ap, the next r.r, and the true residual's square.
    state: DeviceBytes,
}

/// The numbers in `state`.
const RR: u64 = 0;
const PAP: u64 = 8;
const RR_NEXT: u64 = 16;
const TRUE: u64 = 24;

impl<'a> Solver<'a> {
    fn new(lab: &'a Lab, cube: Cube) -> Result<Self, Error> {
        let blocks = lab.gpu.info()?.multiprocessors * BLOCKS;
        let vector = || lab.bytes(cube.vector_bytes());
        let (x, r, p, q) = (vector()?, vector()?, vector()?, vector()?);
        // Padding of a vector is compared too.
        x.fill(0)?;
        let (partial, state) = (lab.bytes(u64::from(blocks) * 8)?, lab.bytes(32)?);
        let launch = Launch::row(blocks.into(), BLOCK);
        Ok(Self { lab, kernels: lab.kernels(&source())?, cube, launch, x, r, p, q, partial, state })
    }

    fn solve(
        &self,
        matrix: &impl Matrix,
        ask: CgAsk,
        progress: &mut impl FnMut(u32, f64),
    ) -> Result<CgRun, Error> {
        self.begin()?;
        let norm = self.number(RR)?.sqrt();
        let (mut iterations, mut residual, started) = (0, 1.0, Instant::now());
        while residual > ask.tolerance && iterations < ask.iterations {
            self.iterate(matrix)?;
            residual = self.number(RR)?.sqrt() / norm;
            iterations += 1;
            progress(iterations, residual);
        }
        let ms_per_iteration = 1e3 * started.elapsed().as_secs_f64() / f64::from(iterations.max(1));
        let true_residual = self.true_residual()? / norm;
        // Rounding separates the two, but not by much.
        if !(residual <= ask.tolerance && true_residual <= 2.0 * ask.tolerance) {
            return Err(Error::Diverges { iterations, residual, true_residual, tolerance: ask.tolerance });
        }
        // Read: p, then x, r, p, q, then r, p; written: q, x, r, p.
        let moved = matrix.bytes() + 11 * 8 * self.cube.rows();
        let gb_per_s = moved as f64 / ms_per_iteration / 1e6;
        Ok(CgRun { iterations, ms_per_iteration, residual, true_residual, gb_per_s })
    }

    fn begin(&self) -> Result<(), Error> {
        let [x, r, p, partial] = [&self.x, &self.r, &self.p, &self.partial].map(at);
        // SAFETY: the arguments of the kernel, with memory for every cell.
        unsafe { self.kernels.start("cg_begin", self.launch, &(self.cube, x, r, p, partial))? };
        self.sum(RR)
    }

    fn iterate(&self, matrix: &impl Matrix) -> Result<(), Error> {
        let [x, r, p, q, partial, state] =
            [&self.x, &self.r, &self.p, &self.q, &self.partial, &self.state].map(at);
        let rows = self.cube.rows();
        matrix.multiply(self)?;
        self.sum(PAP)?;
        // SAFETY: the arguments of the kernels, with memory for every cell.
        unsafe { self.kernels.start("cg_update", self.launch, &(rows, state, x, r, p, q, partial))? };
        self.sum(RR_NEXT)?;
        // SAFETY: likewise.
        unsafe {
            self.kernels.start("cg_direction", self.launch, &(rows, state, r, p))?;
            self.kernels.start("cg_next", Launch::row(1, 1), &(state,))
        }
    }

    fn true_residual(&self) -> Result<f64, Error> {
        // SAFETY: the arguments of the kernel, with memory for every cell.
        unsafe {
            self.kernels.start("cg_residual", self.launch, &(self.cube, at(&self.x), at(&self.partial)))?;
        }
        self.sum(TRUE)?;
        Ok(self.number(TRUE)?.sqrt())
    }

    /// Sums the partial sums of the last kernel.
    fn sum(&self, to: u64) -> Result<(), Error> {
        let arguments = (at(&self.partial), self.launch.blocks.0, at(&self.state) + to);
        // SAFETY: the arguments of the kernel; the state has four numbers.
        unsafe { self.kernels.start("cg_sum", Launch::row(1, BLOCK), &arguments) }
    }

    /// Reads a scalar of the state; waits for the stream.
    fn number(&self, from: u64) -> Result<f64, Error> {
        self.lab.wait()?;
        let mut state = [0; 32];
        self.state.download(&mut state)?;
        let bytes = state[from as usize..][..8].try_into().expect("eight bytes");
        Ok(f64::from_le_bytes(bytes))
    }
}
