//! The sparse product (`kernels/spmv.cu`): values and columns in kernel layouts, x gathered at
//! random.

use buddy_cuda::{DeviceBytes, Launch, Source};
use serde::{Deserialize, Serialize};

use super::{FusedRow, Speeds, fastest_plain};
use crate::{
    Error, Lab,
    lab::{Kernels, at, device_struct, none_wrong, program},
    matrix::{MATRIX_ENTRY, NarrowValues, OffsetColumns, TableValues},
};

/// Lanes per row of the sparse product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpmvShape {
    /// Lanes per row of about 32 elements.
    pub short_rows: u32,
    /// Lanes per row of about 256 elements.
    pub long_rows: u32,
}

impl Default for SpmvShape {
    fn default() -> Self {
        Self { short_rows: 8, long_rows: 32 }
    }
}

impl SpmvShape {
    pub(super) fn check(self) -> Result<(), Error> {
        let lanes = [self.short_rows, self.long_rows].iter().all(|lanes| [2, 4, 8, 16, 32].contains(lanes));
        lanes
            .then_some(())
            .ok_or(Error::Cut { of: "sparse product", why: "2, 4, 8, 16 or 32 lanes to a row" })
    }

    /// The programs for short and for long rows.
    pub(super) fn sources(self) -> [Source; 2] {
        [self.short_rows, self.long_rows].map(source)
    }
}

fn source(lanes: u32) -> Source {
    let name = format!("spmv-{lanes}.cu");
    program(&name, include_str!("../../kernels/spmv.cu"), &[format!("BUDDY_SPMV_LANES={lanes}")])
}

/// A gathered vector: its length, elements per matrix row, and address.
#[derive(Clone, Copy)]
struct Vector {
    columns: u32,
    per_row: u32,
    place: &'static str,
}

const VECTORS: [Vector; 2] = [
    Vector { columns: 1 << 24, per_row: 256, place: "x of 128 MiB, in memory" },
    Vector { columns: 1 << 21, per_row: 32, place: "x of 16 MiB, in L2" },
];

const ELEMENTS: u32 = 1 << 27;
/// Entries, and the most that may be stored plain.
const ENTRIES: u32 = ELEMENTS / MATRIX_ENTRY;
const OTHERS: u32 = ENTRIES / 64;
/// Bytes that a gather moves.
const SECTOR: u64 = 32;
/// Distinct values of a matrix with few values.
const FEW: u32 = 200;
/// Values sampled to build the table.
const SAMPLE: usize = 1 << 16;

device_struct!(Matrix { starts: u64, rows: u32, columns: u32 });

/// Kind of a matrix's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Data {
    /// Normal single-precision numbers.
    Floats,
    /// A few distinct doubles.
    Few,
}

/// Returns a grid of `count` threads.
fn threads(count: u32) -> Launch {
    Launch::row(u64::from(count.div_ceil(256)), 256)
}

pub(super) fn measure(
    lab: &Lab,
    speeds: Speeds,
    shape: SpmvShape,
    add: &mut impl FnMut(FusedRow),
) -> Result<(), Error> {
    for vector in VECTORS {
        let lanes = if vector.per_row < 64 { shape.short_rows } else { shape.long_rows };
        for data in [Data::Floats, Data::Few] {
            add(System::new(lab, lanes, vector, data)?.row(speeds)?);
        }
    }
    Ok(())
}

/// A matrix in plain memory, and the vectors of its products.
struct System<'a> {
    lab: &'a Lab,
    kernels: Kernels,
    lanes: u32,
    vector: Vector,
    data: Data,
    values: DeviceBytes,
    columns: DeviceBytes,
    starts: DeviceBytes,
    x: DeviceBytes,
    y: DeviceBytes,
}

/// The same matrix in kernel layouts: the arrays of its values, and of its columns.
struct Packed {
    values: [DeviceBytes; 3],
    columns: [DeviceBytes; 4],
    /// Entries stored plain, of 32 elements each.
    others: u64,
}

impl Packed {
    fn narrow(&self) -> NarrowValues {
        let [narrow, kinds, others] = self.values.each_ref().map(at);
        NarrowValues { narrow, kinds, others }
    }

    fn table(&self) -> TableValues {
        let [places, table, _] = self.values.each_ref().map(at);
        TableValues { places, table }
    }

    fn columns(&self) -> OffsetColumns {
        let [low, high, bases, others] = self.columns.each_ref().map(at);
        OffsetColumns { low, high, bases, others }
    }

    /// Returns the bytes that a product reads: all arrays, but of `others` only the used part.
    fn bytes(&self) -> u64 {
        let arrays = self.values[..2].iter().chain(&self.columns[..3]).map(DeviceBytes::len).sum::<u64>();
        arrays + self.others * u64::from(MATRIX_ENTRY) * 12
    }
}

impl<'a> System<'a> {
    fn new(lab: &'a Lab, lanes: u32, vector: Vector, data: Data) -> Result<Self, Error> {
        let kernels = lab.kernels(&source(lanes))?;
        let rows = ELEMENTS / vector.per_row;
        let of = |elements: u32, bytes: u64| lab.bytes(u64::from(elements) * bytes);
        let (values, columns) = (of(ELEMENTS, 8)?, of(ELEMENTS, 4)?);
        let (starts, x, y) = (of(rows + 1, 4)?, of(vector.columns, 8)?, of(rows, 8)?);
        let system = Self { lab, kernels, lanes, vector, data, values, columns, starts, x, y };
        let different = if data == Data::Few { FEW } else { 0 };
        let (starts, values, columns) = (at(&system.starts), at(&system.values), at(&system.columns));
        let (x, count) = (at(&system.x), vector.columns);
        // SAFETY: the arguments of these kernels, with memory for the stated rows, columns and
        // elements.
        unsafe {
            let kernels = &system.kernels;
            kernels.start("spmv_fill_starts", threads(rows + 1), &(starts, rows, vector.per_row))?;
            let all = (values, columns, system.matrix(), different);
            kernels.start("spmv_fill", threads(32 * rows), &all)?;
            kernels.start("spmv_fill_vector", threads(count), &(x, count))?;
        }
        Ok(system)
    }

    fn matrix(&self) -> Matrix {
        Matrix {
            starts: at(&self.starts),
            rows: ELEMENTS / self.vector.per_row,
            columns: self.vector.columns,
        }
    }

    /// Packs values and columns; fails if their layouts do not suit them.
    fn pack(&self) -> Result<Packed, Error> {
        let of = |count: u32, bytes: u64| self.lab.bytes(u64::from(count) * bytes);
        let columns =
            [of(ELEMENTS, 2)?, of(ELEMENTS, 1)?, of(ENTRIES, 4)?, of(OTHERS, 4 * u64::from(MATRIX_ENTRY))?];
        let values = match self.data {
            Data::Floats => [of(ELEMENTS, 4)?, of(ENTRIES, 4)?, of(OTHERS, 8 * u64::from(MATRIX_ENTRY))?],
            Data::Few => [of(ELEMENTS, 1)?, of(256, 8)?, of(1, 8)?],
        };
        let mut packed = Packed { values, columns, others: 0 };
        let (values, columns) = (at(&self.values), at(&self.columns));
        // SAFETY: the arguments of the kernel, with memory for every entry and for `others`.
        let far = self.lab.count(|count| unsafe {
            let arguments = (columns, packed.columns(), ENTRIES, OTHERS, count.address());
            self.kernels.start("pack_columns", threads(ENTRIES), &arguments)
        })?;
        let odd = match self.data {
            // SAFETY: likewise.
            Data::Floats => self.lab.count(|count| unsafe {
                let arguments = (values, packed.narrow(), ENTRIES, OTHERS, count.address());
                self.kernels.start("pack_narrow", threads(ENTRIES), &arguments)
            })?,
            Data::Few => self.pack_table(&packed)?,
        };
        let room = if self.data == Data::Few { 0 } else { u64::from(OTHERS) };
        if far > u64::from(OTHERS) || odd > room {
            let why = "too many of its entries do not fit the layouts";
            return Err(Error::Cut { of: "packed matrix", why });
        }
        packed.others = far.max(odd);
        Ok(packed)
    }

    /// Builds the table of values and gives each element its index; returns the number of elements
    /// without one.
    fn pack_table(&self, packed: &Packed) -> Result<u64, Error> {
        let mut sample = vec![0; 8 * SAMPLE];
        self.values.download(&mut sample)?;
        let mut table: Vec<f64> = sample.as_chunks::<8>().0.iter().copied().map(f64::from_le_bytes).collect();
        table.sort_by(f64::total_cmp);
        table.dedup();
        let used = table.len().min(256);
        table.resize(256, 0.0);
        packed.values[1].upload(&table.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())?;
        // SAFETY: the arguments of the kernel, with an index for every element.
        self.lab.count(|count| unsafe {
            let arguments = (at(&self.values), packed.table(), used as u32, ELEMENTS, count.address());
            self.kernels.start("pack_table", threads(ELEMENTS), &arguments)
        })
    }

    fn start_simple(&self, y: &DeviceBytes) -> Result<(), Error> {
        let arguments = (at(&self.values), at(&self.columns), self.matrix(), at(&self.x), at(y));
        // SAFETY: the arguments of the kernel, with memory for the matrix and both vectors.
        unsafe { self.kernels.start("spmv_simple", threads(32 * self.matrix().rows), &arguments) }
    }

    fn start_plain(&self, y: &DeviceBytes) -> Result<(), Error> {
        let arguments = (at(&self.values), at(&self.columns), self.matrix(), at(&self.x), at(y));
        // SAFETY: likewise.
        unsafe { self.kernels.start("spmv_plain", threads(self.lanes * self.matrix().rows), &arguments) }
    }

    fn start_packed(&self, packed: &Packed, y: &DeviceBytes) -> Result<(), Error> {
        let (launch, columns) = (threads(self.lanes * self.matrix().rows), packed.columns());
        let (matrix, x, y) = (self.matrix(), at(&self.x), at(y));
        // SAFETY: likewise, and the arrays are those of the layouts.
        unsafe {
            match self.data {
                Data::Floats => {
                    self.kernels.start("spmv_narrow", launch, &(packed.narrow(), columns, matrix, x, y))
                }
                Data::Few => {
                    self.kernels.start("spmv_table", launch, &(packed.table(), columns, matrix, x, y))
                }
            }
        }
    }

    /// Times a kernel and checks its result up to rounding.
    fn time(&self, what: &str, y: &DeviceBytes, run: impl Fn() -> Result<(), Error>) -> Result<f64, Error> {
        y.fill(0xee)?;
        let us = self.lab.time(2, |_| run())?;
        let (matrix, rows) = (self.matrix(), threads(self.matrix().rows));
        // SAFETY: the arguments of `spmv_check`; the last one is a counter.
        let wrong = self.lab.count(|wrong| unsafe {
            let arguments =
                (at(&self.values), at(&self.columns), matrix, at(&self.x), at(y), wrong.address());
            self.kernels.start("spmv_check", rows, &arguments)
        })?;
        none_wrong(&format!("sparse product, {what}"), wrong)?;
        Ok(us)
    }

    fn row(&self, speeds: Speeds) -> Result<FusedRow, Error> {
        let (packed, expected) = (self.pack()?, self.lab.bytes(self.y.len())?);
        let simple_us = self.time("simple", &expected, || self.start_simple(&expected))?;
        let twin_us = self.time("plain", &expected, || self.start_plain(&expected))?;
        let fused_us = self.time("packed", &self.y, || self.start_packed(&packed, &self.y))?;
        self.lab.same("sparse product", expected.all(), self.y.all())?;
        let (against, against_us) = fastest_plain(simple_us, twin_us);
        // Gathers from L2 are no memory traffic.
        let in_memory = self.vector.columns > 1 << 22;
        let gathered = if in_memory { u64::from(ELEMENTS) * SECTOR } else { self.x.len() };
        let rest = gathered + self.starts.len() + self.y.len();
        let fused_bytes = packed.bytes() + rest;
        let values = if self.data == Data::Few { "values by table" } else { "values as floats" };
        Ok(FusedRow {
            what: format!("sparse product, fp64, {ELEMENTS} elements, {}", self.vector.place),
            tokens: None,
            memory: format!("{values}, columns as offsets of 24 bits"),
            fused_us,
            overlapped_us: None,
            against,
            against_us,
            twin_us,
            twin_overlapped_us: None,
            fused_bytes,
            plain_bytes: self.values.len() + self.columns.len() + rest,
            of_memory: fused_bytes as f64 / speeds.read_gb_per_s / 1e3 / fused_us,
            overflow: packed.others as f64 / f64::from(ENTRIES),
            limiter: "gathers".to_owned(),
        })
    }
}
