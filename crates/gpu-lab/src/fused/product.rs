//! The product with bf16 weights (`kernels/examples/product.cu`), beside the vendor's library on plain weights.

use buddy_codec::CodecKind;
use buddy_core::Target;
use buddy_cuda::{Allocation, DeviceBytes, Launch, Source};
use serde::{Deserialize, Serialize};

use super::{FusedRow, Speeds, TWIN};
use crate::{
    Error, Lab,
    lab::{Kernels, at, device_struct, moved_bytes, none_wrong, overflow, program},
    vendor::Vendor,
};

/// How the product is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProductShape {
    /// Consumer warps of a block, each with four entries of a row in a step.
    pub warps: u32,
    /// Stages of the ring in shared memory, each a step of 16 rows.
    pub stages: u32,
    /// Epilogue warps of a block, called `adders` in records.
    #[serde(rename = "adders")]
    pub epilogue_warps: u32,
}

impl Default for ProductShape {
    fn default() -> Self {
        Self { warps: 8, stages: 3, epilogue_warps: 4 }
    }
}

/// The shape for plain weights, which take more room.
const PLAIN: ProductShape = ProductShape { warps: 8, stages: 2, epilogue_warps: 4 };
/// Bytes of an entry at 4/3x, and plain.
const PACKED_BYTES: u32 = 96;
const PLAIN_BYTES: u32 = 128;
/// Rows of a tile, and entries of a row that are a warp's in a step.
const ROWS: u32 = 16;
const SHARE: u32 = 4;
/// Shared memory that a block can have.
const MOST_SHARED: u32 = 227 << 10;
/// Padding after a right-hand side in shared memory, so that two of them are in different banks.
const PADDING: u32 = 16;

impl ProductShape {
    pub(super) fn check(self) -> Result<(), Error> {
        // Eight sides of one step have room, and steps divide the columns that are measured.
        let sane = [1, 2, 4, 8, 16].contains(&self.warps) && self.stages > 0 && self.epilogue_warps > 0;
        let few = self.stages <= 16 && self.warps + self.epilogue_warps < 32;
        let possible =
            sane && few && self.shared(PACKED_BYTES) + (self.step() * 128 + PADDING) * SIDES <= MOST_SHARED;
        let why =
            "a power of two of warps to 16, and stages and epilogue warps that have room in shared memory";
        possible.then_some(()).ok_or(Error::Cut { of: "product", why })
    }

    pub(super) fn source(self) -> Source {
        let defines = [
            format!("BUDDY_PRODUCT_MMA_WARPS={}", self.warps),
            format!("BUDDY_PRODUCT_STAGES={}", self.stages),
            format!("BUDDY_PRODUCT_EPILOGUE_WARPS={}", self.epilogue_warps),
            format!("BUDDY_PRODUCT_SHARED={}", self.shared(PACKED_BYTES)),
            format!("BUDDY_PRODUCT_SHARED_PLAIN={}", self.shared(PLAIN_BYTES)),
        ];
        let source = program("product.cu", include_str!("../../kernels/product.cu"), &defines);
        // The bulk copy engine.
        Source { least: 90, ..source }
    }

    /// Shared memory of a block but for the right-hand sides (`SharedStorage::AT_X`): stages with their descriptors and
    /// barriers, slots of sums with theirs, what is prefetched across the link, and the barrier of x.
    fn shared(self, entry: u32) -> u32 {
        let (stage, slot) = (ROWS * self.step() * entry + 32, self.warps * 512 + 24);
        (self.stages * stage + self.epilogue_warps * slot + self.warps * 256 + 8).next_multiple_of(128)
    }

    /// Entries of a row in a step.
    fn step(self) -> u32 {
        self.warps * SHARE
    }

    /// Entries of a row in a panel: as many as have room in shared memory, in panels of about the same width.
    fn panel(self, entry: u32, columns: u32, sides: u32) -> u32 {
        let per_row = columns / 64;
        let room = ((MOST_SHARED - self.shared(entry)) / sides - PADDING) / 128 / self.step() * self.step();
        let panels = per_row.div_ceil(room.max(self.step()));
        per_row.div_ceil(panels).next_multiple_of(self.step())
    }

    fn launch(self, entry: u32, multiprocessors: u32, shape: Shape) -> Launch {
        let shared = self.shared(entry) + (shape.panel * 128 + PADDING) * shape.sides;
        Launch::new((multiprocessors, 1), 32 * (self.warps + self.epilogue_warps + 1), shared)
    }
}

/// The most right-hand sides.
const SIDES: u32 = 8;
/// The seed of x.
const X: u64 = 77;
/// Rows and columns of the matrices that are measured.
const SIZES: [(u32, u32); 2] = [(28672, 8192), (8192, 28672)];
/// Copies of a matrix that are used in turn, so that none is left in the cache.
const COPIES: usize = 3;
/// Launches that are timed together.
const LAUNCHES: usize = 7 * COPIES;
/// How far a sum in single precision may be from an exact one, as a share of the sum of magnitudes. One wrong weight of
/// average size among 8192 would be twelve times as far.
const ROUNDING: f64 = 1e-5;

device_struct!(Shape { rows: u32, columns: u32, sides: u32, panel: u32 });

/// The kernels that multiply.
#[derive(Debug, Clone, Copy)]
enum Kernel {
    Fused,
    Plain,
    /// Plain weights in the order of compressed ones.
    Ordered,
}

/// Fills memory with normal numbers; a share of the entries are odd.
fn fill(kernels: &Kernels, to: &DeviceBytes, seed: u64, odd: f64) -> Result<(), Error> {
    let arguments = (at(to), to.len() / 128, seed, (odd * 65536.0) as u32);
    // SAFETY: the arguments of `product_fill`, with memory for so many entries.
    unsafe { kernels.start("product_fill", Launch::new((4096, 1), 256, 0), &arguments) }
}

/// All that products with one matrix need.
struct Matrix<'a> {
    lab: &'a Lab,
    speeds: Speeds,
    kernels: Kernels,
    /// Cut for plain weights.
    plain_kernels: Kernels,
    shape: ProductShape,
    size: (u32, u32),
    plain: Vec<DeviceBytes>,
    packed: Vec<Allocation>,
    x: DeviceBytes,
    y: DeviceBytes,
    other: DeviceBytes,
    partials: DeviceBytes,
    counters: DeviceBytes,
}

/// Measures both matrices with one to eight right-hand sides.
pub(super) fn measure(
    lab: &Lab,
    speeds: Speeds,
    shape: ProductShape,
    add: &mut impl FnMut(FusedRow),
) -> Result<(), Error> {
    // Many zeros, overflows and rare layouts, of which normal weights have few.
    Matrix::new(lab, speeds, shape, (4096, 8192), 1, 0.02)?.verify(&[1, 3, 8])?;
    for size in SIZES {
        let matrix = Matrix::new(lab, speeds, shape, size, COPIES, 0.0)?;
        matrix.verify(&[1, 2, 4, 8])?;
        for sides in [1, 2, 4, 8] {
            let vendor = matrix.vendor(sides)?;
            add(matrix.row(sides, vendor)?);
        }
    }
    Ok(())
}

/// Both matrices, one and eight right-hand sides, without the vendor.
pub(super) fn tune(
    lab: &Lab,
    speeds: Speeds,
    shape: ProductShape,
    add: &mut impl FnMut(FusedRow),
) -> Result<(), Error> {
    Matrix::new(lab, speeds, shape, (4096, 8192), 1, 0.02)?.verify(&[3])?;
    SIZES.into_iter().try_for_each(|size| {
        let matrix = Matrix::new(lab, speeds, shape, size, COPIES, 0.0)?;
        matrix.verify(&[1, 8])?;
        [1, 8].into_iter().try_for_each(|sides| matrix.row(sides, None).map(&mut *add))
    })
}

impl<'a> Matrix<'a> {
    fn new(
        lab: &'a Lab,
        speeds: Speeds,
        shape: ProductShape,
        size: (u32, u32),
        copies: usize,
        odd: f64,
    ) -> Result<Self, Error> {
        let bytes = u64::from(size.0) * u64::from(size.1) * 2;
        let (kernels, plain_kernels) = (lab.kernels(&shape.source())?, lab.kernels(&PLAIN.source())?);
        let (mut plain, mut packed) = (Vec::new(), Vec::new());
        for seed in 0..copies as u64 {
            let weights = lab.bytes(bytes)?;
            fill(&kernels, &weights, seed, odd)?;
            packed.push(lab.compress(CodecKind::Bf16, Target::X4Over3, weights.all())?);
            plain.push(weights);
        }
        let x = lab.bytes(u64::from(SIDES * size.1) * 2)?;
        let y = || lab.bytes(u64::from(SIDES * size.0) * 4);
        // Partial sums: four to a lane for every tile and panel, which is a step at the least. Counters: of blocks, of each
        // tile, of each panel.
        let (tiles, panels) = (size.0 / ROWS, size.1 / (64 * shape.step().min(PLAIN.step())));
        let partials = lab.bytes(u64::from(tiles * panels) * 32 * 16)?;
        let counters = lab.bytes(u64::from(1 + tiles + panels) * 4)?;
        counters.fill(0)?;
        let (y, other) = (y()?, y()?);
        Ok(Self {
            lab,
            speeds,
            kernels,
            plain_kernels,
            shape,
            size,
            plain,
            packed,
            x,
            y,
            other,
            partials,
            counters,
        })
    }

    /// The shape of the product, and the launch, for a kernel's own cut.
    fn cut(&self, kernel: Kernel, sides: u32) -> (Shape, Launch) {
        let (cut, entry) = match kernel {
            Kernel::Plain => (PLAIN, PLAIN_BYTES),
            Kernel::Fused | Kernel::Ordered => (self.shape, PACKED_BYTES),
        };
        let (rows, columns) = self.size;
        let shape = Shape { rows, columns, sides, panel: cut.panel(entry, columns, sides) };
        (shape, cut.launch(entry, self.lab.gpu.multiprocessors(), shape))
    }

    /// Starts a product; if it `overlaps`, its first weights may come while the one before it in the stream ends.
    fn start(
        &self,
        kernel: Kernel,
        overlaps: bool,
        copy: usize,
        sides: u32,
        y: &DeviceBytes,
    ) -> Result<(), Error> {
        let (shape, launch) = self.cut(kernel, sides);
        let launch = Launch { overlaps, ..launch };
        let (x, y) = (at(&self.x), at(y));
        let (partials, counters) = (at(&self.partials), at(&self.counters));
        let (view, weights) = (self.packed[copy].buffer().view(), at(&self.plain[copy]));
        let (fused, plain) = (&self.kernels, &self.plain_kernels);
        // SAFETY: the arguments of the kernels, with memory for the matrix, eight sides, and the sums of all panels. They wait
        // for the kernel before them but for the weights, which were written before that one began.
        unsafe {
            match kernel {
                Kernel::Fused => {
                    fused.start("product_fused", launch, &(view, x, y, partials, counters, shape))
                }
                Kernel::Plain => {
                    plain.start("product_plain", launch, &(weights, x, y, partials, counters, shape))
                }
                Kernel::Ordered => {
                    fused.start("product_ordered", launch, &(weights, view, x, y, partials, counters, shape))
                }
            }
        }
    }

    /// Compressed weights give the sums of plain ones in the same order, to the bit; those and the plain kernel's are
    /// right to rounding.
    fn verify(&self, sides: &[u32]) -> Result<(), Error> {
        for &sides in sides {
            self.x.fill(0)?;
            self.y.fill(0xee)?;
            self.other.fill(0xee)?;
            // Each overlaps with the one before, which wrote its x, or uses the same counters and partial sums.
            fill(&self.kernels, &self.x, X, 0.0)?;
            self.start(Kernel::Fused, true, 0, sides, &self.y)?;
            self.start(Kernel::Fused, true, 0, sides, &self.other)?;
            self.lab.same("overlapped product", self.y.all(), self.other.all())?;
            self.other.fill(0xee)?;
            self.start(Kernel::Ordered, false, 0, sides, &self.other)?;
            self.lab.same("product", self.y.all(), self.other.all())?;
            none_wrong("product, against exact sums", self.wrong(sides, &self.y)?)?;
            self.other.fill(0xee)?;
            self.start(Kernel::Plain, false, 0, sides, &self.other)?;
            none_wrong("plain product, against exact sums", self.wrong(sides, &self.other)?)?;
        }
        self.lab.describe(self.packed[0].buffer())
    }

    /// Sums that are further from exact ones than rounding explains.
    fn wrong(&self, sides: u32, y: &DeviceBytes) -> Result<u64, Error> {
        let launch = Launch::new((self.size.0.div_ceil(8), 1), 256, 0);
        self.lab.count(|count| {
            let arguments = (
                at(&self.plain[0]),
                at(&self.x),
                at(y),
                ROUNDING,
                self.cut(Kernel::Plain, sides).0,
                count.address(),
            );
            // SAFETY: the arguments of `product_check`.
            unsafe { self.kernels.start("product_check", launch, &arguments) }
        })
    }

    fn row(&self, sides: u32, vendor: Option<(String, f64)>) -> Result<FusedRow, Error> {
        let time = |kernel, overlaps| {
            self.lab.time(LAUNCHES, |i| self.start(kernel, overlaps, i % COPIES, sides, &self.y))
        };
        let (fused_us, twin_us) = (time(Kernel::Fused, false)?, time(Kernel::Plain, false)?);
        let overlapped_us = Some(time(Kernel::Fused, true)?);
        let (against, against_us) = vendor.unwrap_or((TWIN.to_owned(), twin_us));
        let others = u64::from(sides) * (2 * u64::from(self.size.1) + 4 * u64::from(self.size.0));
        let fused_bytes = moved_bytes(self.packed[0].buffer()) + others;
        let of_memory = fused_bytes as f64 / self.speeds.read_gb_per_s / 1e3 / fused_us;
        Ok(FusedRow {
            what: format!("bf16 product, {} x {}, {sides} right-hand", self.size.0, self.size.1),
            tokens: None,
            memory: "bf16 at 4/3x".to_owned(),
            fused_us,
            overlapped_us,
            against,
            against_us,
            twin_us,
            twin_overlapped_us: None,
            fused_bytes,
            plain_bytes: self.plain[0].len() + others,
            of_memory,
            overflow: overflow(self.packed[0].buffer()),
            limiter: self.limiter(sides, of_memory).to_owned(),
        })
    }

    /// What keeps the product from being faster.
    fn limiter(&self, sides: u32, of_memory: f64) -> &'static str {
        let (shape, _) = self.cut(Kernel::Fused, sides);
        if shape.panel < shape.columns / 64 {
            "x in panels"
        } else if of_memory > 0.85 {
            "memory"
        } else {
            "instructions"
        }
    }

    /// The vendor's best: every algorithm that its heuristics name, tried on plain weights, with results in bf16 and in
    /// fp32; none without the library.
    fn vendor(&self, sides: u32) -> Result<Option<(String, f64)>, Error> {
        let mut best: Option<(String, f64)> = None;
        for wide in [false, true] {
            let Some(vendor) = Vendor::new(self.lab, self.size, sides, wide)? else { return Ok(None) };
            let run = |algorithm: usize, turn: usize| {
                let weights = self.plain[turn % COPIES].all();
                vendor.multiply(&self.lab.stream, algorithm, weights, self.x.all(), self.other.all())
            };
            // What the heuristics name may still not run.
            let runs = (0..vendor.algorithms()).filter(|&algorithm| run(algorithm, 0).is_ok());
            let tried: Vec<(usize, f64)> = runs
                .map(|algorithm| Ok((algorithm, self.lab.time(LAUNCHES, |turn| run(algorithm, turn))?)))
                .collect::<Result<_, Error>>()?;
            let Some(&(fastest, us)) = tried.iter().min_by(|a, b| a.1.total_cmp(&b.1)) else { continue };
            if wide {
                run(fastest, 0)?;
                none_wrong("the vendor's product", self.wrong(sides, &self.other)?)?;
            }
            if best.as_ref().is_none_or(|(_, least)| us < *least) {
                let out = if wide { "fp32" } else { "bf16" };
                best = Some((format!("cuBLASLt, the best of its algorithms (result in {out})"), us));
            }
        }
        Ok(best)
    }
}
