//! Linear layers from frozen weights, beside the vendor's library on plain ones.

use std::time::Instant;

use buddy_codec::CodecKind;
use buddy_core::Target;
use buddy_cuda::{DeviceBytes, FrozenBuffer, Launch, Linear, Output};

use super::{FusedRow, ProductShape, Speeds, TWIN, frozen};
use crate::{
    Error, Lab,
    lab::{Kernels, at, none_wrong},
    nvcomp::Nvcomp,
    vendor::Vendor,
};

/// Outputs and inputs of the layers of an 8B and of a 70B Llama.
const LLAMA: [(u32, u32); 10] = [
    (6144, 4096),
    (4096, 4096),
    (28672, 4096),
    (4096, 14336),
    (128_256, 4096),
    (10240, 8192),
    (8192, 8192),
    (57344, 8192),
    (8192, 28672),
    (128_256, 8192),
];
/// Tokens that are measured.
const TOKENS: [u32; 8] = [1, 8, 16, 32, 64, 128, 512, 4096];
/// Plain bytes of all copies of a matrix together: more than the cache holds.
const IN_TURN: u64 = 400 << 20;
/// Launches that are timed together, at least.
const LAUNCHES: usize = 12;
/// Algorithms of the vendor's that are timed properly.
const FINALISTS: usize = 4;
/// Tokens whose results are compared with exact sums, at most.
const COMPARED: u32 = 32;
/// How far a sum in single precision may be from an exact one, as a share of the sum of magnitudes.
const ROUNDING: f64 = 1e-5;

crate::lab::device_struct!(Shape { rows: u32, columns: u32, sides: u32, panel: u32 });

/// A matrix, plain and frozen, some copies of it, and memory to work in.
pub(crate) struct Layer<'a> {
    pub(super) lab: &'a Lab,
    kernels: Kernels,
    pub(super) size: (u32, u32),
    pub(super) plain: Vec<DeviceBytes>,
    pub(super) frozen: Vec<DeviceBytes>,
    pub(super) headers: Vec<buddy_codec::FrozenHeader>,
    x: DeviceBytes,
    y: DeviceBytes,
    other: DeviceBytes,
    scratch: DeviceBytes,
}

impl<'a> Layer<'a> {
    /// Normal weights; a share of the entries are zeros, sparse, or overflow.
    pub(crate) fn new(
        lab: &'a Lab,
        size: (u32, u32),
        tokens: u32,
        copies: usize,
        odd: f64,
    ) -> Result<Self, Error> {
        let bytes = u64::from(size.0) * u64::from(size.1) * 2;
        let kernels = lab.kernels(&ProductShape::default().source())?;
        let (mut plain, mut frozen, mut headers) = (Vec::new(), Vec::new(), Vec::new());
        for seed in 0..copies as u64 {
            let weights = lab.bytes(bytes)?;
            fill(&kernels, &weights, seed, odd)?;
            let codec = lab.gpu.train(&lab.stream, CodecKind::Bf16, weights.all())?;
            let (target, row) = (Target::X4Over3, size.1 / 64);
            // Room for all that could overflow.
            let most = u32::try_from(bytes / 128 + u64::from(row) * 16).unwrap_or(u32::MAX);
            let memory = lab.bytes(FrozenBuffer::room(&codec, target, row, bytes, most))?;
            let packed = FrozenBuffer::pack(
                &lab.gpu,
                &lab.stream,
                (&codec, target, row),
                weights.all(),
                memory.all(),
            )?;
            headers.push(packed.header().clone());
            plain.push(weights);
            frozen.push(memory);
        }
        let x = lab.bytes(u64::from(tokens) * u64::from(size.1) * 2)?;
        fill(&kernels, &x, 77, 0.0)?;
        let y = || lab.bytes((u64::from(tokens) * u64::from(size.0) * 4).next_multiple_of(128));
        let scratch = lab.bytes(Linear::room(&lab.gpu, &headers[0], tokens)?)?;
        Linear::prepare(&lab.gpu, &lab.stream, scratch.all())?;
        let (y, other) = (y()?, y()?);
        Ok(Self { lab, kernels, size, plain, frozen, headers, x, y, other, scratch })
    }

    /// Starts the layer.
    pub(crate) fn start(
        &self,
        copy: usize,
        tokens: u32,
        (y, output): (&DeviceBytes, Output),
        overlaps: bool,
    ) -> Result<(), Error> {
        let weights = FrozenBuffer::new(&self.lab.gpu, self.headers[copy].clone(), self.frozen[copy].all())?;
        let x = self.x.span(0..u64::from(tokens) * u64::from(self.size.1) * 2);
        let (y, scratch) = (y.all(), self.scratch.all());
        let linear = Linear { weights: &weights, x, bias: None, y, output, scratch, overlaps };
        Ok(linear.start(&self.lab.stream)?)
    }

    /// What was frozen is read back, and the sums are right to rounding and the same each time, to the bit.
    ///
    /// Of the tokens, so many are compared with exact sums.
    pub(crate) fn verify(&self, tokens: u32, compared: u32) -> Result<(), Error> {
        let weights = FrozenBuffer::new(&self.lab.gpu, self.headers[0].clone(), self.frozen[0].all())?;
        let back = self.lab.bytes(self.plain[0].len())?;
        weights.read(&self.lab.stream, 0, back.all())?;
        self.lab.same("frozen weights", self.plain[0].all(), back.all())?;
        self.y.fill(0xee)?;
        self.other.fill(0xee)?;
        self.start(0, tokens, (&self.y, Output::Fp32), true)?;
        self.start(0, tokens, (&self.other, Output::Fp32), true)?;
        self.lab.same("overlapped layers", self.y.all(), self.other.all())?;
        none_wrong("linear layer, against exact sums", self.wrong(compared)?)
    }

    fn wrong(&self, tokens: u32) -> Result<u64, Error> {
        let shape = Shape { rows: self.size.0, columns: self.size.1, sides: tokens, panel: 0 };
        let launch = Launch::new((self.size.0.div_ceil(8), 1), 256, 0);
        self.lab.count(|count| {
            let arguments = (at(&self.plain[0]), at(&self.x), at(&self.y), ROUNDING, shape, count.address());
            // SAFETY: the arguments of `product_check`.
            unsafe { self.kernels.start("product_check", launch, &arguments) }
        })
    }

    fn row(&self, speeds: Speeds, tokens: u32) -> Result<FusedRow, Error> {
        let copies = self.plain.len();
        let launches = if tokens >= 512 { copies } else { LAUNCHES.next_multiple_of(copies) };
        let time = |overlaps| {
            self.time(launches, |i| self.start(i % copies, tokens, (&self.y, Output::Bf16), overlaps))
        };
        let (fused_us, overlapped_us) = (time(false)?, time(true)?);
        let (against, against_us) = self.vendor(tokens, launches)?.unwrap_or((TWIN.to_owned(), f64::NAN));
        let (rows, columns) = (u64::from(self.size.0), u64::from(self.size.1));
        let others = 2 * u64::from(tokens) * (rows + columns);
        let fused_bytes = rows * columns / 64 * 96 + rows * columns / 128 + others;
        let of_memory = fused_bytes as f64 / speeds.read_gb_per_s / 1e3 / fused_us;
        Ok(FusedRow {
            what: format!("linear layer, {} x {}, {tokens} tokens", self.size.0, self.size.1),
            memory: "bf16 frozen at 4/3x".to_owned(),
            fused_us,
            overlapped_us: Some(overlapped_us),
            against,
            against_us,
            twin_us: against_us,
            fused_bytes,
            plain_bytes: self.plain[0].len() + others,
            of_memory,
            overflow: 0.0,
            limiter: if of_memory > 0.85 { "memory" } else { "instructions" }.to_owned(),
        })
    }

    /// The vendor's best of all algorithms that its heuristics name, timed as ours is.
    fn vendor(&self, tokens: u32, launches: usize) -> Result<Option<(String, f64)>, Error> {
        let Some(vendor) = Vendor::new(self.lab, self.size, tokens, false)? else { return Ok(None) };
        let run = |algorithm: usize, turn: usize| {
            let weights = self.plain[turn % self.plain.len()].all();
            vendor.multiply(&self.lab.stream, algorithm, weights, self.x.all(), self.other.all())
        };
        // Each once, and the best of them properly.
        let mut tried = Vec::new();
        for algorithm in (0..vendor.algorithms()).filter(|&algorithm| run(algorithm, 0).is_ok()) {
            self.lab.wait()?;
            let start = Instant::now();
            (0..self.plain.len()).try_for_each(|turn| run(algorithm, turn))?;
            self.lab.wait()?;
            tried.push((start.elapsed(), algorithm));
        }
        tried.sort();
        let best = tried
            .iter()
            .take(FINALISTS)
            .map(|&(_, algorithm)| self.time(launches, |turn| run(algorithm, turn)));
        let best = best.collect::<Result<Vec<f64>, Error>>()?.into_iter().min_by(f64::total_cmp);
        Ok(best.map(|us| ("cuBLASLt, the best of its algorithms".to_owned(), us)))
    }

    /// Microseconds of each of some launches in a graph.
    fn time(&self, launches: usize, mut start: impl FnMut(usize) -> Result<(), Error>) -> Result<f64, Error> {
        let graph = self.lab.graph(|| (0..launches).try_for_each(&mut start))?;
        self.lab.time_graph(launches, &graph)
    }
}

/// Fills memory with normal numbers; a share of the entries are odd.
fn fill(kernels: &Kernels, to: &DeviceBytes, seed: u64, odd: f64) -> Result<(), Error> {
    let arguments = (at(to), to.len() / 128, seed, (odd * 65536.0) as u32);
    // SAFETY: the arguments of `product_fill`, with memory for so many entries.
    unsafe { kernels.start("product_fill", Launch::new((4096, 1), 256, 0), &arguments) }
}

/// Measures every layer with every number of tokens, and what comes before.
pub(super) fn measure(lab: &Lab, speeds: Speeds, add: &mut impl FnMut(FusedRow)) -> Result<(), Error> {
    let nvcomp = Nvcomp::load();
    add(frozen::creation(lab)?);
    for size in LLAMA {
        let bytes = u64::from(size.0) * u64::from(size.1) * 2;
        let copies = IN_TURN.div_ceil(bytes).max(3) as usize;
        let layer = Layer::new(lab, size, TOKENS[TOKENS.len() - 1], copies, 0.0)?;
        layer.packing(speeds, nvcomp.as_ref())?.into_iter().for_each(&mut *add);
        for tokens in TOKENS {
            layer.verify(tokens, tokens.min(COMPARED))?;
            add(layer.row(speeds, tokens)?);
        }
    }
    Ok(())
}

/// Compares layers of shapes that nobody chose with exact sums: rows, columns, tokens and weights at random, some of them in rare
/// layouts.
///
/// # Errors
/// [`Error::Differs`] with the first that is wrong.
pub fn check_linear(lab: &Lab, shapes: u64, most: u32) -> Result<(), Error> {
    let mut random = 1u64;
    let mut next = |below: u32| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as u32 % below
    };
    for i in 0..shapes {
        let (rows, columns, tokens) = (1 + next(1000), 64 * (1 + next(40)), 1 + next(most));
        let layer = Layer::new(lab, (rows, columns), tokens, 1, [0.0, 0.02, 0.5][i as usize % 3])?;
        layer
            .verify(tokens, tokens)
            .map_err(|error| Error::Differs(format!("{rows} x {columns}, {tokens} tokens: {error}")))?;
    }
    Ok(())
}
