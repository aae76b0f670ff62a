//! The sparse product (`kernels/examples/spmv.cu`): values and columns from compressed memory, x gathered at random.

use buddy_codec::CodecKind;
use buddy_core::Target;
use buddy_cuda::{Allocation, DeviceBytes, Launch, Source};
use serde::{Deserialize, Serialize};

use super::{FusedRow, Speeds, device_struct, fastest_plain};
use crate::{
    Error, Lab,
    lab::{Kernels, at, moved_bytes, none_wrong, overflow, program},
};

/// How the sparse product is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpmvShape {
    /// Warps of a block.
    pub warps: u32,
    /// Elements of a warp, about.
    pub elements: u32,
    /// Gathers of a lane that are on their way at once.
    pub at_once: u32,
}

impl Default for SpmvShape {
    fn default() -> Self {
        Self { warps: 4, elements: 1 << 15, at_once: 8 }
    }
}

impl SpmvShape {
    pub(super) fn check(self) -> Result<(), Error> {
        let lanes = [1, 2, 4, 8, 16, 32].contains(&self.at_once);
        let possible = lanes && (1..=32).contains(&self.warps) && self.elements > 0;
        let why = "1 to 32 warps, some elements, a power of two of gathers to 32";
        possible.then_some(()).ok_or(Error::Cut { of: "sparse product", why })
    }

    pub(super) fn source(self) -> Source {
        let defines =
            [format!("BUDDY_SPMV_WARPS={}", self.warps), format!("BUDDY_SPMV_AT_ONCE={}", self.at_once)];
        program("spmv.cu", include_str!("../../kernels/spmv.cu"), &defines)
    }

    fn matrix(self, vector: Vector, starts: &DeviceBytes) -> Matrix {
        let rows_per_warp = (self.elements / vector.per_row).max(1);
        let rows = ELEMENTS / vector.per_row;
        Matrix { starts: at(starts), rows, columns: vector.columns, rows_per_warp, reserved: 0 }
    }

    fn launch(self, matrix: Matrix) -> Launch {
        Launch::new((matrix.rows.div_ceil(self.warps * matrix.rows_per_warp), 1), 32 * self.warps, 0)
    }
}

/// A vector that is gathered from: its length, elements of a row, and where it lies.
#[derive(Clone, Copy)]
struct Vector {
    columns: u32,
    per_row: u32,
    place: &'static str,
    limiter: &'static str,
}

const VECTORS: [Vector; 2] = [
    Vector { columns: 1 << 24, per_row: 256, place: "x of 128 MiB, in memory", limiter: "gathers" },
    Vector { columns: 1 << 21, per_row: 32, place: "x of 16 MiB, in L2", limiter: "instructions" },
];

const ELEMENTS: u32 = 1 << 27;
/// Bytes that a gather from memory moves.
const SECTOR: u64 = 32;

device_struct!(Matrix { starts: u64, rows: u32, columns: u32, rows_per_warp: u32, reserved: u32 });

/// The kernels that multiply.
#[derive(Debug, Clone, Copy)]
enum Kernel {
    Fused,
    Plain,
    /// A warp to a row, as one would write it without us.
    Simple,
}

/// A matrix, plain and compressed, with all that products with it need.
struct System<'a> {
    lab: &'a Lab,
    kernels: Kernels,
    shape: SpmvShape,
    vector: Vector,
    values: DeviceBytes,
    columns: DeviceBytes,
    starts: DeviceBytes,
    x: DeviceBytes,
    y: DeviceBytes,
    packed: [Allocation; 2],
}

/// A grid of so many threads.
fn threads(count: u32) -> Launch {
    Launch::row(u64::from(count.div_ceil(256)), 256)
}

pub(super) fn measure(
    lab: &Lab,
    speeds: Speeds,
    shape: SpmvShape,
    add: &mut impl FnMut(FusedRow),
) -> Result<(), Error> {
    VECTORS.into_iter().try_for_each(|vector| System::new(lab, shape, vector)?.row(speeds).map(&mut *add))
}

impl<'a> System<'a> {
    fn new(lab: &'a Lab, shape: SpmvShape, vector: Vector) -> Result<Self, Error> {
        let kernels = lab.kernels(&shape.source())?;
        let rows = ELEMENTS / vector.per_row;
        let of = |elements: u32, bytes: u64| lab.bytes(u64::from(elements) * bytes);
        let (values, columns) = (of(ELEMENTS, 8)?, of(ELEMENTS, 4)?);
        let (starts, x, y) = (of(rows + 1, 4)?, of(vector.columns, 8)?, of(rows, 8)?);
        let matrix = shape.matrix(vector, &starts);
        // SAFETY: the arguments of these kernels, with memory for as many rows, columns and elements as they say.
        unsafe {
            kernels.start("spmv_fill_starts", threads(rows + 1), &(at(&starts), rows, vector.per_row))?;
            kernels.start("spmv_fill", threads(32 * rows), &(at(&values), at(&columns), matrix))?;
            kernels.start("spmv_fill_vector", threads(vector.columns), &(at(&x), vector.columns))?;
        }
        let packed = [
            lab.compress(CodecKind::Planes64, Target::X4Over3, values.all())?,
            lab.compress(CodecKind::Bpc, Target::X4Over3, columns.all())?,
        ];
        Ok(Self { lab, kernels, shape, vector, values, columns, starts, x, y, packed })
    }

    fn matrix(&self) -> Matrix {
        self.shape.matrix(self.vector, &self.starts)
    }

    fn start(&self, kernel: Kernel, y: &DeviceBytes) -> Result<(), Error> {
        let (matrix, x, y) = (self.matrix(), at(&self.x), at(y));
        let (values, columns) = (at(&self.values), at(&self.columns));
        let [packed_values, packed_columns] = self.packed.each_ref().map(|one| one.buffer().view());
        let (kernels, launch) = (&self.kernels, self.shape.launch(matrix));
        // SAFETY: the arguments of the kernels, with memory for the matrix and both vectors; both buffers have the codecs of
        // the fused one.
        unsafe {
            match kernel {
                Kernel::Fused => {
                    kernels.start("spmv_fused", launch, &(packed_values, packed_columns, matrix, x, y))
                }
                Kernel::Plain => {
                    kernels.start("spmv_plain", launch, &(values, columns, u64::from(ELEMENTS), matrix, x, y))
                }
                Kernel::Simple => {
                    kernels.start("spmv_simple", threads(32 * matrix.rows), &(values, columns, matrix, x, y))
                }
            }
        }
    }

    /// The time of a kernel, whose result is right to rounding.
    fn time(&self, kernel: Kernel, y: &DeviceBytes) -> Result<f64, Error> {
        y.fill(0xee)?;
        let us = self.lab.time(2, |_| self.start(kernel, y))?;
        let (matrix, rows) = (self.matrix(), threads(self.matrix().rows));
        // SAFETY: the arguments of `spmv_check`; the last one is a counter.
        let wrong = self.lab.count(|wrong| unsafe {
            let arguments =
                (at(&self.values), at(&self.columns), matrix, at(&self.x), at(y), wrong.address());
            self.kernels.start("spmv_check", rows, &arguments)
        })?;
        none_wrong(&format!("sparse product, {kernel:?}"), wrong)?;
        Ok(us)
    }

    fn row(&self, speeds: Speeds) -> Result<FusedRow, Error> {
        let expected = self.lab.bytes(self.y.len())?;
        let simple_us = self.time(Kernel::Simple, &expected)?;
        let twin_us = self.time(Kernel::Plain, &expected)?;
        let fused_us = self.time(Kernel::Fused, &self.y)?;
        let packed = self.packed.each_ref().map(Allocation::buffer);
        packed.into_iter().try_for_each(|buffer| self.lab.describe(buffer))?;
        self.lab.same("sparse product", expected.all(), self.y.all())?;
        let (against, against_us) = fastest_plain(simple_us, twin_us);
        // What is gathered from L2 is no traffic of the memory.
        let in_memory = self.vector.columns > 1 << 22;
        let gathered = if in_memory { u64::from(ELEMENTS) * SECTOR } else { self.x.len() };
        let others = gathered + self.starts.len() + self.y.len();
        let fused_bytes = packed.into_iter().map(moved_bytes).sum::<u64>() + others;
        Ok(FusedRow {
            what: format!("sparse product, fp64, {ELEMENTS} elements, {}", self.vector.place),
            memory: "values planes64, columns bpc, at 4/3x".to_owned(),
            fused_us,
            overlapped_us: None,
            against,
            against_us,
            twin_us,
            fused_bytes,
            plain_bytes: self.values.len() + self.columns.len() + others,
            of_memory: fused_bytes as f64 / speeds.read_gb_per_s / 1e3 / fused_us,
            overflow: packed.into_iter().map(overflow).fold(0.0, f64::max),
            limiter: self.vector.limiter.to_owned(),
        })
    }
}
