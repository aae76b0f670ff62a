//! The product with bf16 weights (`kernels/examples/product.cu`), beside the vendor's library on plain weights.

use buddy_codec::CodecKind;
use buddy_core::Target;
use cudarc::driver::DeviceRepr;
use serde::{Deserialize, Serialize};

use super::{
    FusedRow,
    lab::{Kernels, Lab, Launch, at, device_struct, none_wrong, overflow, stored_bytes},
};
use crate::{BuddyBuffer, DeviceBytes, Error, Source, driver::Vendor};

/// How the product is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProductShape {
    /// Warps of a block that multiply, 16 rows each.
    pub warps: u32,
    /// Entries of a row in a slice: 4 or 8.
    pub step: u32,
    /// Slices of a warp in shared memory; of plain weights, as many as have room.
    pub ring: u32,
    /// Stages of the right-hand sides in shared memory.
    pub stages: u32,
    /// Entries that are unrolled.
    pub unroll: u32,
    /// Blocks of a multiprocessor.
    pub blocks: u32,
}

impl Default for ProductShape {
    fn default() -> Self {
        CANDIDATES[0]
    }
}

/// Shapes that are tried before the best of them is measured.
const CANDIDATES: [ProductShape; 6] = [
    ProductShape { warps: 16, step: 4, ring: 1, stages: 4, unroll: 2, blocks: 1 },
    ProductShape { warps: 8, step: 8, ring: 2, stages: 2, unroll: 4, blocks: 1 },
    ProductShape { warps: 8, step: 8, ring: 2, stages: 2, unroll: 8, blocks: 1 },
    ProductShape { warps: 8, step: 4, ring: 3, stages: 6, unroll: 4, blocks: 1 },
    ProductShape { warps: 4, step: 8, ring: 1, stages: 2, unroll: 4, blocks: 3 },
    ProductShape { warps: 4, step: 8, ring: 3, stages: 3, unroll: 4, blocks: 1 },
];
/// Shared memory that a block can have.
const MOST_SHARED: u32 = 227 << 10;

impl ProductShape {
    pub(super) fn source(self) -> Source {
        let defines = [
            format!("BUDDY_PRODUCT_WARPS={}", self.warps),
            format!("BUDDY_PRODUCT_STEP={}", self.step),
            format!("BUDDY_PRODUCT_RING={}", self.ring),
            format!("BUDDY_PRODUCT_RING_PLAIN={}", self.plain_ring()),
            format!("BUDDY_PRODUCT_STAGES={}", self.stages),
            format!("BUDDY_PRODUCT_UNROLL={}", self.unroll),
            format!("BUDDY_PRODUCT_BLOCKS={}", self.blocks),
            format!("BUDDY_PRODUCT_SHARED={}", self.shared(true, self.ring)),
            format!("BUDDY_PRODUCT_SHARED_PLAIN={}", self.shared(false, self.plain_ring())),
        ];
        let source = Source::new("product.cu", include_str!("../../kernels/examples/product.cu"), &defines);
        // The bulk copy engine.
        Source { least: 90, ..source }
    }

    /// Shared memory of a block: slices and right-hand sides, each with room that keeps banks apart, and barriers.
    fn shared(self, packed: bool, ring: u32) -> u32 {
        let row = if packed { (96 * self.step + 63) / 128 * 128 + 64 } else { 128 * self.step + 16 };
        self.warps * ring * (16 * row + 8) + self.stages * (SIDES * (128 * self.step + 16) + 16)
    }

    fn plain_ring(self) -> u32 {
        let fits = |&ring: &u32| self.shared(false, ring) * self.blocks <= MOST_SHARED;
        (1..=self.ring).rev().find(fits).unwrap_or(1)
    }

    fn launch(self, multiprocessors: u32, kernel: Kernel) -> Launch {
        let shared = match kernel {
            Kernel::Plain => self.shared(false, self.plain_ring()),
            Kernel::Fused | Kernel::Ordered => self.shared(true, self.ring),
        };
        Launch { blocks: (multiprocessors * self.blocks, 1), threads: 32 * (self.warps + 1), shared }
    }
}

const SIDES: u32 = 8;
/// Copies of a matrix that are used in turn, so that none is left in the cache.
const COPIES: usize = 3;
/// How far a sum in single precision may be from an exact one, as a share of the sum of magnitudes. One wrong weight of
/// average size among 8192 would be twelve times as far.
const ROUNDING: f64 = 1e-5;

device_struct!(Shape { rows: u32, columns: u32, sides: u32 });

/// The kernels that multiply.
#[derive(Debug, Clone, Copy)]
enum Kernel {
    Fused,
    Plain,
    /// Plain weights in the order of compressed ones.
    Ordered,
}

/// All that products with one matrix need.
struct Matrix<'a> {
    lab: &'a Lab,
    kernels: Kernels<'a>,
    shape: ProductShape,
    size: (u32, u32),
    plain: Vec<DeviceBytes>,
    packed: Vec<BuddyBuffer>,
    x: DeviceBytes,
    y: DeviceBytes,
    other: DeviceBytes,
    sums: DeviceBytes,
    counts: DeviceBytes,
}

/// Measures both matrices with one to eight right-hand sides, at the best of some shapes, and says which.
pub(super) fn measure(lab: &Lab, add: &mut impl FnMut(FusedRow)) -> Result<ProductShape, Error> {
    let mut best: Option<(f64, ProductShape)> = None;
    for shape in CANDIDATES {
        let mut us = 0.0;
        tune(lab, shape, &mut |row| us += row.fused_us)?;
        if best.is_none_or(|(least, _)| us < least) {
            best = Some((us, shape));
        }
    }
    let (_, shape) = best.expect("there are candidates");
    // Overflow, zeros and rare layouts, which normal weights do not have.
    Matrix::new(lab, shape, (4096, 8192), 1, 0.02)?.verify(&[1, 3, 8])?;
    for size in [(28672, 8192), (8192, 28672)] {
        let matrix = Matrix::new(lab, shape, size, COPIES, 0.0)?;
        matrix.verify(&[1, 8])?;
        for sides in [1, 2, 4, 8] {
            let vendor = matrix.vendor(sides)?;
            add(matrix.row(sides, vendor)?);
        }
    }
    Ok(shape)
}

/// One matrix, one and eight right-hand sides, without the vendor.
pub(super) fn tune(lab: &Lab, shape: ProductShape, add: &mut impl FnMut(FusedRow)) -> Result<(), Error> {
    Matrix::new(lab, shape, (4096, 8192), 1, 0.02)?.verify(&[3])?;
    let matrix = Matrix::new(lab, shape, (28672, 8192), COPIES, 0.0)?;
    matrix.verify(&[8])?;
    [1, 8].into_iter().try_for_each(|sides| matrix.row(sides, None).map(&mut *add))
}

impl<'a> Matrix<'a> {
    fn new(
        lab: &'a Lab,
        shape: ProductShape,
        size: (u32, u32),
        copies: usize,
        odd: f64,
    ) -> Result<Self, Error> {
        let bytes = u64::from(size.0) * u64::from(size.1) * 2;
        let kernels = lab.kernels(&shape.source())?;
        let make = |entries: u64, to: &DeviceBytes, seed: u64, odd: f64| {
            let launch = Launch { blocks: (4096, 1), threads: 256, shared: 0 };
            // SAFETY: the arguments of `product_fill`, with memory for so many entries.
            unsafe { kernels.start("product_fill", launch, &(at(to), entries, seed, (odd * 65536.0) as u32)) }
        };
        let (mut plain, mut packed) = (Vec::new(), Vec::new());
        for seed in 0..copies as u64 {
            let weights = lab.bytes(bytes)?;
            make(bytes / 128, &weights, seed, odd)?;
            packed.push(lab.compress(CodecKind::Bf16, Target::X4Over3, weights.all())?);
            plain.push(weights);
        }
        let x = lab.bytes(u64::from(SIDES * size.1) * 2)?;
        make(x.len() / 128, &x, 77, 0.0)?;
        let y = || lab.bytes(u64::from(SIDES * size.0) * 4);
        let blocks = lab.gpu.multiprocessors() * shape.blocks;
        let sums = lab.bytes(u64::from(blocks * 2 * shape.warps) * 32 * 16)?;
        let counts = lab.bytes(u64::from(size.0))?;
        counts.fill(0)?;
        let (y, other) = (y()?, y()?);
        Ok(Self { lab, kernels, shape, size, plain, packed, x, y, other, sums, counts })
    }

    fn shape(&self, sides: u32) -> Shape {
        Shape { rows: self.size.0, columns: self.size.1, sides }
    }

    fn start(&self, kernel: Kernel, copy: usize, sides: u32, y: &DeviceBytes) -> Result<(), Error> {
        let launch = self.shape.launch(self.lab.gpu.multiprocessors(), kernel);
        let (x, y, sums, counts) = (at(&self.x), at(y), at(&self.sums), at(&self.counts));
        let (shape, view, weights) = (self.shape(sides), self.packed[copy].view(), at(&self.plain[copy]));
        let start = &self.kernels;
        // SAFETY: the arguments of the kernels, with memory for the matrix, eight sides, and the sums of all
        // blocks.
        unsafe {
            match kernel {
                Kernel::Fused => start.start("product_fused", launch, &(view, x, y, sums, counts, shape)),
                Kernel::Plain => start.start("product_plain", launch, &(weights, x, y, sums, counts, shape)),
                Kernel::Ordered => {
                    start.start("product_ordered", launch, &(weights, view, x, y, sums, counts, shape))
                }
            }
        }
    }

    /// Compressed weights give the sums of plain ones in the same order, to the bit; those and the plain kernel's are
    /// right to rounding.
    fn verify(&self, sides: &[u32]) -> Result<(), Error> {
        for &sides in sides {
            self.y.fill(0xee)?;
            self.other.fill(0xee)?;
            self.start(Kernel::Fused, 0, sides, &self.y)?;
            self.start(Kernel::Ordered, 0, sides, &self.other)?;
            self.lab.same("product", self.y.all(), self.other.all())?;
            none_wrong("product, against exact sums", self.wrong(sides, &self.y)?)?;
            self.other.fill(0xee)?;
            self.start(Kernel::Plain, 0, sides, &self.other)?;
            none_wrong("plain product, against exact sums", self.wrong(sides, &self.other)?)?;
        }
        self.lab.describe(&self.packed[0])
    }

    /// Sums that are further from exact ones than rounding explains.
    fn wrong(&self, sides: u32, y: &DeviceBytes) -> Result<u64, Error> {
        let launch = Launch { blocks: (self.size.0.div_ceil(8), 1), threads: 256, shared: 0 };
        self.lab.count(|count| {
            let arguments =
                (at(&self.plain[0]), at(&self.x), at(y), ROUNDING, self.shape(sides), count.address());
            // SAFETY: the arguments of `product_check`.
            unsafe { self.kernels.start("product_check", launch, &arguments) }
        })
    }

    fn row(&self, sides: u32, vendor: Option<(String, f64)>) -> Result<FusedRow, Error> {
        let launches = 7 * COPIES;
        let fused_us = self.lab.time(launches, |i| self.start(Kernel::Fused, i % COPIES, sides, &self.y))?;
        let twin_us = self.lab.time(launches, |i| self.start(Kernel::Plain, i % COPIES, sides, &self.y))?;
        let (against, against_us) = vendor.unwrap_or(("the same kernel, plain".to_owned(), twin_us));
        let others = u64::from(sides) * (2 * u64::from(self.size.1) + 4 * u64::from(self.size.0));
        let fused_bytes = stored_bytes(&self.packed[0]) + others;
        Ok(FusedRow {
            what: format!("bf16 product, {} x {}, {sides} right-hand", self.size.0, self.size.1),
            memory: "bf16 at 4/3x".to_owned(),
            fused_us,
            against,
            against_us,
            twin_us,
            fused_bytes,
            plain_bytes: self.plain[0].len() + others,
            of_memory: fused_bytes as f64 / self.lab.read_gb_per_s / 1e3 / fused_us,
            overflow: overflow(&self.packed[0]),
            limiter: "instructions".to_owned(),
        })
    }

    /// The vendor's best: every algorithm that its heuristics name, tried on plain weights; none without the library.
    fn vendor(&self, sides: u32) -> Result<Option<(String, f64)>, Error> {
        let mut best: Option<(String, f64)> = None;
        for wide in [false, true] {
            let Some(vendor) = Vendor::new(&self.lab.gpu, self.size, sides, wide)? else { return Ok(None) };
            for i in 0..vendor.algorithms() {
                let run = |turn: usize| {
                    let weights = self.plain[turn % COPIES].all();
                    vendor.multiply(&self.lab.stream, i, weights, self.x.all(), self.other.all())
                };
                // What the heuristics name may still not run.
                if run(0).is_err() {
                    continue;
                }
                if wide && i == 0 {
                    none_wrong("the vendor's product", self.wrong(sides, &self.other)?)?;
                }
                let us = self.lab.time(COPIES, run)?;
                if best.as_ref().is_none_or(|(_, least)| us < *least) {
                    let out = if wide { "fp32" } else { "bf16" };
                    best = Some((format!("cuBLASLt, the best of its algorithms (result in {out})"), us));
                }
            }
        }
        Ok(best)
    }
}
