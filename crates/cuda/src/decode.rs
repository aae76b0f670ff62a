//! Kernels between the linear layers of a decode step (`decode.cu`): residual add with RMSNorm,
//! gates, and greedy sampling. Each uses programmatic dependent launch; none blocks or allocates.

use std::sync::Arc;

use cudarc::driver::{CudaFunction, CudaStream};

use crate::{DeviceSpan, Error, Gpu, Source, driver::Launch};

/// Values per thread and access.
const CHUNK: u64 = 8;
/// The most threads of a CTA, and chunks of a norm's row per thread.
const THREADS: (u64, u64) = (1024, 4);
/// Threads of a CTA of the gate kernel.
const GATE_THREADS: u32 = 128;
const ALIGNED: &str = "whole rows of a multiple of 8 bf16 values, aligned to 16 bytes";

/// The kernels of a decode step.
#[derive(Debug, Clone)]
pub struct Decoding {
    gpu: Gpu,
    kernels: Arc<[CudaFunction; 4]>,
}

/// Adds to a residual stream and applies RMSNorm; one row per token.
#[derive(Debug, Clone, Copy)]
pub struct RmsNorm<'a> {
    /// The residual stream.
    pub stream: DeviceSpan<'a>,
    /// Receives the sum, if values are added; may be the stream.
    pub sum: DeviceSpan<'a>,
    /// Values to add; `None` for the norm alone.
    pub added: Option<DeviceSpan<'a>>,
    /// Weights of the norm, one per value of a row.
    pub weights: DeviceSpan<'a>,
    /// Receives the normalised rows.
    pub out: DeviceSpan<'a>,
    /// Added to the mean of squares.
    pub epsilon: f32,
    /// Rounds the result alone, as compilers that fuse the steps do; otherwise the sum and the
    /// scaled values are rounded too, as frameworks do step by step.
    pub rounds_once: bool,
}

/// Greedy sampling: the most likely token of each sequence.
#[derive(Debug, Clone, Copy)]
pub struct Pick<'a> {
    /// Logits, bf16: one row per sequence.
    pub scores: DeviceSpan<'a>,
    /// Tokens by position, 32 bits each: one row per sequence. The chosen token is written at its
    /// position.
    pub history: DeviceSpan<'a>,
    /// Lengths of the sequences in tokens, 32 bits each; incremented.
    pub lengths: DeviceSpan<'a>,
    /// Receives the entries of the token's row in a frozen embedding, 32 bits each, as
    /// [`gather`](crate::FrozenBuffer::gather) takes them; equally many per sequence.
    pub entries: DeviceSpan<'a>,
}

/// The structs of `decode.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct NormView {
    stream: u64,
    sum: u64,
    added: u64,
    weights: u64,
    out: u64,
    chunks: u32,
    epsilon: f32,
    rounds_once: u32,
    reserved: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct GateView {
    both: u64,
    out: u64,
    chunks: u32,
    interleaved: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct PickView {
    scores: u64,
    history: u64,
    lengths: u64,
    entries: u64,
    chunks: u32,
    history_stride: u32,
    row: u32,
    reserved: u32,
}

impl Decoding {
    /// Compiles the kernels, or loads them from the cache.
    ///
    /// # Errors
    /// An error of the compiler or the driver.
    pub fn new(gpu: &Gpu) -> Result<Self, Error> {
        let module = gpu.module(&Source::decode())?;
        let find = |name| gpu.check("find the kernels", module.load_function(name));
        let names = ["decode_norm", "decode_norm_long", "decode_gate", "decode_pick"].map(find);
        let [short, long, gate, pick] = names;
        let kernels = Arc::new([short?, long?, gate?, pick?]);
        Ok(Self { gpu: gpu.clone(), kernels })
    }

    /// Enqueues the residual add and the norm.
    ///
    /// # Errors
    /// [`Error::Shape`] for memory of the wrong size, or a driver error.
    pub fn norm(&self, on: &CudaStream, norm: &RmsNorm<'_>) -> Result<(), Error> {
        let row = norm.weights.bytes();
        let weights = norm.weights.check(2 * CHUNK, 16, ALIGNED)?;
        let chunks = weights.bytes() / 2 / CHUNK;
        let stream = norm.stream.check(row.max(1), 16, ALIGNED)?;
        if chunks == 0 || chunks > THREADS.0 * THREADS.1 {
            return Err(shape(weights, "1 to 32768 values to a row"));
        }
        let sum = norm.added.map(|_| norm.sum);
        for span in [Some(norm.out), norm.added, sum].into_iter().flatten() {
            same(span, stream)?;
        }
        let threads = chunks.next_multiple_of(32).min(THREADS.0) as u32;
        let arguments = NormView {
            stream: stream.address(),
            sum: sum.map_or(0, DeviceSpan::address),
            added: norm.added.map_or(0, DeviceSpan::address),
            weights: weights.address(),
            out: norm.out.address(),
            chunks: chunks as u32,
            epsilon: norm.epsilon,
            rounds_once: u32::from(norm.rounds_once),
            reserved: 0,
        };
        let kernel = usize::from(chunks > THREADS.0);
        self.start(on, kernel, (stream.bytes() / row, 1), threads, &(arguments,))
    }

    /// Enqueues silu(gate) * value; a row holds all gates, then all values, or, interleaved, eight
    /// gates and eight values in turn.
    ///
    /// # Errors
    /// [`Error::Shape`] for memory of the wrong size, or a driver error.
    pub fn gate(
        &self,
        on: &CudaStream,
        both: DeviceSpan<'_>,
        out: DeviceSpan<'_>,
        tokens: u32,
        interleaved: bool,
    ) -> Result<(), Error> {
        let out = out.check(2 * CHUNK * u64::from(tokens).max(1), 16, ALIGNED)?;
        if both.bytes() != 2 * out.bytes() || !both.address().is_multiple_of(16) {
            return Err(shape(both, "a gate and a value for each result"));
        }
        let chunks = out.bytes() / 2 / CHUNK / u64::from(tokens).max(1);
        let arguments = GateView {
            both: both.address(),
            out: out.address(),
            chunks: chunks as u32,
            interleaved: u32::from(interleaved),
        };
        let blocks = (chunks.div_ceil(u64::from(GATE_THREADS)), tokens);
        self.start(on, 2, blocks, GATE_THREADS, &(arguments,))
    }

    /// Enqueues the choice of the next tokens.
    ///
    /// # Errors
    /// [`Error::Shape`] for memory of the wrong size, or a driver error.
    pub fn pick(&self, on: &CudaStream, pick: &Pick<'_>) -> Result<(), Error> {
        let sequences = pick.lengths.check(4, 4, "32 bits for each sequence")?.bytes() / 4;
        let whole = sequences.max(1);
        let scores = pick.scores.check(2 * CHUNK * whole, 16, ALIGNED)?;
        let history = pick.history.check(4 * whole, 4, "as many tokens for each sequence")?;
        let entries = pick.entries.check(4 * whole, 4, "as many entries for each sequence")?;
        let arguments = PickView {
            scores: scores.address(),
            history: history.address(),
            lengths: pick.lengths.address(),
            entries: entries.address(),
            chunks: (scores.bytes() / 2 / CHUNK / whole) as u32,
            history_stride: (history.bytes() / 4 / whole) as u32,
            row: (entries.bytes() / 4 / whole) as u32,
            reserved: 0,
        };
        self.start(on, 3, (sequences, 1), THREADS.0 as u32, &(arguments,))
    }

    fn start(
        &self,
        on: &CudaStream,
        kernel: usize,
        (blocks, rows): (u64, u32),
        threads: u32,
        arguments: &impl crate::Arguments,
    ) -> Result<(), Error> {
        self.gpu.alive()?;
        if blocks == 0 || rows == 0 {
            return Ok(());
        }
        let launch = Launch { overlaps: true, ..Launch::new((blocks as u32, rows), threads, 0) };
        // SAFETY: these are the kernel's arguments; the callers checked the size of all memory.
        let started = unsafe { launch.start(on, &self.kernels[kernel], arguments) };
        self.gpu.check("start a part of a decode step", started)
    }
}

fn shape(span: DeviceSpan<'_>, need: &'static str) -> Error {
    Error::Shape { bytes: span.bytes(), address: span.address(), need }
}

/// Fails unless a span has the stream's size and alignment.
fn same(span: DeviceSpan<'_>, stream: DeviceSpan<'_>) -> Result<(), Error> {
    if span.bytes() != stream.bytes() || !span.address().is_multiple_of(16) {
        return Err(shape(span, "as many values as the residual stream, aligned to 16 bytes"));
    }
    Ok(())
}
