//! The sparse product (`kernels/examples/spmv.cu`): values and columns from compressed memory, x gathered at random.

use buddy_codec::CodecKind;
use buddy_core::Target;
use cudarc::driver::DeviceRepr;
use serde::{Deserialize, Serialize};

use super::{
    FusedRow,
    lab::{Lab, Launch, at, device_struct, none_wrong, overflow, stored_bytes},
};
use crate::{Error, Source};

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
        Source::new("spmv.cu", include_str!("../../kernels/examples/spmv.cu"), &defines)
    }

    fn launch(self, matrix: Matrix) -> Launch {
        Launch::new((matrix.rows.div_ceil(self.warps * matrix.rows_per_warp), 1), 32 * self.warps, 0)
    }
}

/// A vector that is gathered from: its length, elements of a row, and where it lies.
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

pub(super) fn measure(lab: &Lab, shape: SpmvShape, add: &mut impl FnMut(FusedRow)) -> Result<(), Error> {
    VECTORS.iter().try_for_each(|vector| row(lab, shape, vector).map(&mut *add))
}

fn row(lab: &Lab, shape: SpmvShape, vector: &Vector) -> Result<FusedRow, Error> {
    let kernels = lab.kernels(&shape.source())?;
    let rows = ELEMENTS / vector.per_row;
    let of = |elements: u32, bytes: u64| lab.bytes(u64::from(elements) * bytes);
    let (values, columns) = (of(ELEMENTS, 8)?, of(ELEMENTS, 4)?);
    let (starts, x) = (of(rows + 1, 4)?, of(vector.columns, 8)?);
    let (y, expected) = (of(rows, 8)?, of(rows, 8)?);
    let rows_per_warp = (shape.elements / vector.per_row).max(1);
    let matrix = Matrix { starts: at(&starts), rows, columns: vector.columns, rows_per_warp, reserved: 0 };
    let threads = |count: u32| Launch::new((count.div_ceil(256), 1), 256, 0);
    let warps = threads(32 * rows);
    // SAFETY: the arguments of these kernels, with memory for as many rows, columns and elements as they say.
    unsafe {
        kernels.start("spmv_fill_starts", threads(rows + 1), &(at(&starts), rows, vector.per_row))?;
        kernels.start("spmv_fill", warps, &(at(&values), at(&columns), matrix))?;
        kernels.start("spmv_fill_vector", threads(vector.columns), &(at(&x), vector.columns))?;
    }
    let packed_values = lab.compress(CodecKind::Planes64, Target::X4Over3, values.all())?;
    let packed_columns = lab.compress(CodecKind::Bpc, Target::X4Over3, columns.all())?;
    let elements = u64::from(ELEMENTS);
    // SAFETY: likewise.
    let run_simple = |_| unsafe {
        kernels.start("spmv_simple", warps, &(at(&values), at(&columns), matrix, at(&x), at(&expected)))
    };
    // SAFETY: likewise.
    let run_twin = |_| unsafe {
        let arguments = (at(&values), at(&columns), elements, matrix, at(&x), at(&expected));
        kernels.start("spmv_plain", shape.launch(matrix), &arguments)
    };
    // SAFETY: likewise, and both buffers have the kernel's codecs.
    let run_fused = |_| unsafe {
        let arguments = (packed_values.view(), packed_columns.view(), matrix, at(&x), at(&y));
        kernels.start("spmv_fused", shape.launch(matrix), &arguments)
    };
    let check = |y: u64| {
        // SAFETY: likewise; the last argument is a counter.
        lab.count(|wrong| unsafe {
            let arguments = (at(&values), at(&columns), matrix, at(&x), y, wrong.address());
            kernels.start("spmv_check", threads(rows), &arguments)
        })
    };
    let simple_us = lab.time(2, run_simple)?;
    none_wrong("sparse product, simple kernel", check(at(&expected))?)?;
    expected.fill(0xee)?;
    let twin_us = lab.time(2, run_twin)?;
    none_wrong("sparse product in plain memory", check(at(&expected))?)?;
    y.fill(0xee)?;
    let fused_us = lab.time(2, run_fused)?;
    lab.describe(&packed_values)?;
    lab.describe(&packed_columns)?;
    lab.same("sparse product", expected.all(), y.all())?;
    let (against, against_us) = if simple_us < twin_us {
        ("a simple plain kernel", simple_us)
    } else {
        ("the same kernel, plain", twin_us)
    };
    // What is gathered from L2 is no traffic of the memory.
    let gathered = if vector.columns > 1 << 22 { elements * SECTOR } else { x.len() };
    let others = gathered + starts.len() + y.len();
    let fused_bytes = stored_bytes(&packed_values) + stored_bytes(&packed_columns) + others;
    Ok(FusedRow {
        what: format!("sparse product, fp64, {ELEMENTS} elements, {}", vector.place),
        memory: "values planes64, columns bpc, at 4/3x".to_owned(),
        fused_us,
        overlapped_us: None,
        against: against.to_owned(),
        against_us,
        twin_us,
        fused_bytes,
        plain_bytes: values.len() + columns.len() + others,
        of_memory: fused_bytes as f64 / lab.read_gb_per_s / 1e3 / fused_us,
        overflow: overflow(&packed_values).max(overflow(&packed_columns)),
        limiter: vector.limiter.to_owned(),
    })
}
