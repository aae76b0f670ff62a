//! Linear layers with frozen weights, compared with cuBLASLt on plain ones.

use buddy_codec::CodecKind;
use buddy_core::Target;
use buddy_cuda::{DeviceBytes, FrozenBuffer, Launch, Linear, Output, Source};

use super::{FusedRow, LLAMA, Speeds, Wrong, frozen, tight::TightCopies};
use crate::{
    Error, Lab,
    lab::{Kernels, at, none_wrong, program},
    nvcomp::Nvcomp,
};

/// Measured numbers of tokens.
const TOKENS: [u32; 8] = [1, 8, 16, 32, 64, 128, 512, 4096];
/// Plain bytes of all copies of a matrix together: more than L2 holds.
pub(super) const IN_TURN: u64 = 400 << 20;
/// The most tokens whose results are compared with exact sums.
pub(super) const COMPARED: u32 = 128;
/// Rounding error of a single-precision sum, as a fraction of the sum of magnitudes.
const ROUNDING: f64 = 1e-5;

crate::lab::device_struct!(Shape { rows: u32, columns: u32, tokens: u32 });

/// Returns the kernels that make the data and check the results; the layers' kernels are the
/// library's.
pub(super) fn source() -> Source {
    program("linear_data.cu", include_str!("../../kernels/linear_data.cu"), &[])
}

/// A matrix, plain and frozen, in several copies, with scratch memory.
pub(crate) struct Layer<'a> {
    pub(super) lab: &'a Lab,
    pub(super) kernels: Kernels,
    pub(super) size: (u32, u32),
    pub(super) plain: Vec<DeviceBytes>,
    pub(super) frozen: Vec<DeviceBytes>,
    pub(super) headers: Vec<buddy_codec::FrozenHeader>,
    /// Plain weights in tile order, for the same kernels without compression.
    pub(super) tiles: Vec<DeviceBytes>,
    pub(super) tight: Option<TightCopies>,
    pub(super) x: DeviceBytes,
    pub(super) y: DeviceBytes,
    pub(super) other: DeviceBytes,
    pub(super) scratch: DeviceBytes,
}

impl<'a> Layer<'a> {
    /// Creates normal weights; a fraction of the entries are zeros, sparse, or overflow.
    pub(crate) fn new(
        lab: &'a Lab,
        size: (u32, u32),
        tokens: u32,
        copies: usize,
        odd: f64,
    ) -> Result<Self, Error> {
        let bytes = u64::from(size.0) * u64::from(size.1) * 2;
        let kernels = lab.kernels(&source())?;
        let (mut plain, mut frozen, mut headers) = (Vec::new(), Vec::new(), Vec::new());
        for seed in 0..copies as u64 {
            let weights = lab.bytes(bytes)?;
            fill(&kernels, &weights, seed, odd)?;
            let codec = lab.gpu.train(&lab.stream, CodecKind::Bf16, weights.all())?;
            let (target, row) = (Target::X4Over3, size.1 / 64);
            // Capacity for all possible overflow.
            let most = u32::try_from(bytes / 128 + u64::from(row) * 16).unwrap_or(u32::MAX);
            let memory = lab.bytes(FrozenBuffer::room(&codec, target, row, bytes, most))?;
            // Kernels load whole slots, of which an entry may need less.
            memory.fill(0xee)?;
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
        Ok(Self {
            lab,
            kernels,
            size,
            plain,
            frozen,
            headers,
            tiles: Vec::new(),
            tight: None,
            x,
            y,
            other,
            scratch,
        })
    }

    /// Enqueues the layer.
    pub(crate) fn start(
        &self,
        copy: usize,
        tokens: u32,
        to: (&DeviceBytes, Output),
        overlaps: bool,
    ) -> Result<(), Error> {
        self.with(copy, tokens, to, overlaps, |linear| Ok(linear.start(&self.lab.stream)?))
    }

    /// Calls `act` with the layer.
    pub(super) fn with<T>(
        &self,
        copy: usize,
        tokens: u32,
        (y, output): (&DeviceBytes, Output),
        overlaps: bool,
        what: impl FnOnce(&Linear<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let weights = FrozenBuffer::new(&self.lab.gpu, self.headers[copy].clone(), self.frozen[copy].all())?;
        let x = self.x.span(0..u64::from(tokens) * u64::from(self.size.1) * 2);
        let (y, scratch) = (y.all(), self.scratch.all());
        what(&Linear { weights: (&weights).into(), x, bias: None, y, output, scratch, overlaps })
    }

    /// Returns the layer's name in a report.
    pub(super) fn name(&self, tokens: u32) -> String {
        format!("linear layer, {} x {}, {tokens} tokens", self.size.0, self.size.1)
    }

    /// Fails unless the frozen weights decode to the plain ones.
    pub(super) fn verify_weights(&self) -> Result<(), Error> {
        let weights = FrozenBuffer::new(&self.lab.gpu, self.headers[0].clone(), self.frozen[0].all())?;
        let back = self.lab.bytes(self.plain[0].len())?;
        weights.read(&self.lab.stream, 0, back.all())?;
        self.lab.same("frozen weights", self.plain[0].all(), back.all())
    }

    /// Fails unless the results of the first `compared` tokens are correct up to rounding, and two
    /// runs agree bit for bit.
    pub(crate) fn verify(&self, tokens: u32, compared: u32) -> Result<(), Error> {
        self.verify_by(compared, |to| self.start(0, tokens, (to, Output::Fp32), true))
    }

    /// The same for any way to enqueue it.
    pub(super) fn verify_by(
        &self,
        compared: u32,
        start: impl Fn(&DeviceBytes) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.y.fill(0xee)?;
        self.other.fill(0xee)?;
        start(&self.y)?;
        start(&self.other)?;
        self.lab.same("overlapped layers", self.y.all(), self.other.all())?;
        none_wrong("linear layer, against exact sums", self.wrong(compared)?)
    }

    pub(super) fn wrong(&self, tokens: u32) -> Result<u64, Error> {
        let shape = Shape { rows: self.size.0, columns: self.size.1, tokens };
        let launch = Launch::new((self.size.0.div_ceil(8), 1), 256, 0);
        self.lab.count(|count| {
            let arguments = (at(&self.plain[0]), at(&self.x), at(&self.y), ROUNDING, shape, count.address());
            // SAFETY: the arguments of `linear_check`.
            unsafe { self.kernels.start("linear_check", launch, &arguments) }
        })
    }
}

/// Fills memory with normal numbers; a fraction of the entries are irregular.
fn fill(kernels: &Kernels, to: &DeviceBytes, seed: u64, odd: f64) -> Result<(), Error> {
    let arguments = (at(to), to.len() / 128, seed, (odd * 65536.0) as u32);
    // SAFETY: the arguments of `linear_fill`; `to` holds the entries counted.
    unsafe { kernels.start("linear_fill", Launch::new((4096, 1), 256, 0), &arguments) }
}

/// Measures every layer with every number of tokens, and the work before. A failure of one does not
/// stop the others.
pub(super) fn measure(
    lab: &Lab,
    speeds: Speeds,
    add: &mut impl FnMut(Result<FusedRow, Wrong>),
) -> Result<(), Error> {
    let nvcomp = Nvcomp::load();
    add(Ok(frozen::creation(lab)?));
    for size in LLAMA {
        let done = measure_matrix(lab, speeds, size, nvcomp.as_ref(), add);
        done.unwrap_or_else(|error| add(Err(wrong(format!("weights, {} x {}", size.0, size.1), &error))));
    }
    Ok(())
}

/// Measures one matrix.
fn measure_matrix(
    lab: &Lab,
    speeds: Speeds,
    size: (u32, u32),
    nvcomp: Option<&Nvcomp>,
    add: &mut impl FnMut(Result<FusedRow, Wrong>),
) -> Result<(), Error> {
    let bytes = u64::from(size.0) * u64::from(size.1) * 2;
    let copies = IN_TURN.div_ceil(bytes).max(3) as usize;
    let mut layer = Layer::new(lab, size, TOKENS[TOKENS.len() - 1], copies, 0.0)?;
    layer.verify_weights()?;
    layer.make_tiles()?;
    if let Err(error) = layer.make_tight() {
        add(Err(wrong(format!("tight weights, {} x {}", size.0, size.1), &error)));
    }
    match layer.packing(speeds, nvcomp) {
        Ok(rows) => rows.into_iter().for_each(|row| add(Ok(row))),
        Err(error) => add(Err(wrong(format!("weights packed, {} x {}", size.0, size.1), &error))),
    }
    for tokens in TOKENS {
        let (what, compared) = (layer.name(tokens), tokens.min(COMPARED));
        if let Err(error) = layer.verify(tokens, compared) {
            add(Err(wrong(what, &error)));
            continue;
        }
        let twin = layer.verify_plain(tokens, compared);
        let is_twin_right = twin.is_ok();
        if let Err(error) = twin {
            add(Err(wrong(format!("{what}, plain weights in the same form"), &error)));
        }
        let mut ways = layer.ways(tokens);
        ways.retain(|&way| {
            let start = |to: &DeviceBytes| layer.start_way(way, 0, tokens, (to, Output::Fp32), true);
            let verified = layer.verify_by(compared, start);
            verified.map_err(|error| add(Err(wrong(format!("{what}, {}", way.memory()), &error)))).is_ok()
        });
        match layer.rows(speeds, tokens, is_twin_right, &ways) {
            Ok(rows) => rows.into_iter().for_each(|row| add(Ok(row))),
            Err(error) => add(Err(wrong(what, &error))),
        }
    }
    Ok(())
}

fn wrong(what: String, error: &Error) -> Wrong {
    Wrong { what, why: error.to_string() }
}
