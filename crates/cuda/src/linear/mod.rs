//! `linear`: y = W x, with a bias if there is one. W is a matrix of bf16 at 4/3x, frozen or one
//! that may be written, x has a row for each token.
//!
//! Weights are read as they lie, once, and are plain only in registers, or, for very many tokens,
//! in scratch memory for the vendor's product. Which way is taken follows from the shape, by what
//! was measured ([`plan`]).

mod plain_form;
mod plan;
mod trial;
mod unpack;
mod vendor;
mod weights;
mod wide;

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::Hash,
    sync::Arc,
};

use buddy_codec::{Codec, FrozenHeader};
use buddy_core::Target;
use cudarc::driver::{CudaFunction, CudaStream, DriverError};
pub(crate) use plan::sources;
use plan::{ALIGN, MOST_SHARED, Narrow, Pieces, Plan};
pub use trial::Trial;
use vendor::Vendor;
pub use weights::Weights;
use wide::Wide;

use crate::{
    DeviceSpan, Error, Gpu, Source,
    driver::{self, Launch, TensorMap},
    layout::LinearView,
};

/// What a linear layer's result is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Output {
    /// bf16, rounded to nearest.
    #[default]
    Bf16,
    /// fp32, as it was added up.
    Fp32,
    /// bf16 of silu(gate) * value, for weights in which eight rows of gates and eight of values
    /// take turns: half as many outputs as rows. On Hopper, for up to 1536 tokens.
    Gated,
}

impl Output {
    /// Bytes of a row of results of weights with so many rows.
    fn row_bytes(self, rows: u32) -> u64 {
        match self {
            Self::Bf16 => 2 * u64::from(rows),
            Self::Fp32 => 4 * u64::from(rows),
            Self::Gated => u64::from(rows),
        }
    }
}

/// One linear layer on some tokens.
#[derive(Debug, Clone, Copy)]
pub struct Linear<'a> {
    /// A matrix of bf16 at 4/3x.
    pub weights: Weights<'a>,
    /// A row of bf16 for each token, one after the other, aligned to 16 bytes.
    pub x: DeviceSpan<'a>,
    /// A bf16 value for each output.
    pub bias: Option<DeviceSpan<'a>>,
    /// A row of outputs for each token.
    pub y: DeviceSpan<'a>,
    /// What `y` holds.
    pub output: Output,
    /// Memory to work in, [`room`](Linear::room) bytes or more, which [`prepare`](Linear::prepare)
    /// was called for once. Layers that share it must not run at the same time.
    pub scratch: DeviceSpan<'a>,
    /// Whether it may begin while the kernel before it in the stream ends. Its weights must have
    /// been there before that one began; x may be what that one writes.
    pub overlaps: bool,
}

/// The kernels that are loaded so far, by what they are for.
#[derive(Debug, Default)]
pub(crate) struct LinearKernels {
    narrow: HashMap<Narrow, CudaFunction>,
    wide: HashMap<Wide, CudaFunction>,
    unpack: HashMap<(), CudaFunction>,
    vendor: Option<Vendor>,
    /// By the address of the stream that each is beside.
    beside: HashMap<usize, Arc<CudaStream>>,
}

/// N, K and M.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Sizes {
    pub(crate) outputs: u32,
    pub(crate) inputs: u32,
    pub(crate) tokens: u32,
}

impl Linear<'_> {
    /// Bytes of scratch memory for layers of these weights with up to so many tokens.
    ///
    /// # Errors
    /// [`Error::Weights`] unless they are a matrix of bf16 at 4/3x.
    pub fn room(gpu: &Gpu, weights: &FrozenHeader, tokens: u32) -> Result<u64, Error> {
        Self::most(gpu, weights, tokens, |plan, sizes| {
            let (counts, rest) = plan.room(gpu, sizes);
            counts + rest
        })
    }

    /// Bytes of counts for layers of these weights with up to so many tokens: what of scratch
    /// memory must be zeros.
    ///
    /// # Errors
    /// As for [`room`](Self::room).
    pub fn count_room(gpu: &Gpu, weights: &FrozenHeader, tokens: u32) -> Result<u64, Error> {
        Self::most(gpu, weights, tokens, |plan, sizes| plan.count_bytes(gpu, sizes))
    }

    /// The most that any plan for up to so many tokens needs.
    fn most(
        gpu: &Gpu,
        weights: &FrozenHeader,
        tokens: u32,
        need: impl Fn(Plan, Sizes) -> u64,
    ) -> Result<u64, Error> {
        let needs = Plan::steps(tokens).map(|tokens| {
            let sizes = sizes(weights, tokens)?;
            Ok(need(Plan::of(gpu, sizes), sizes))
        });
        needs.collect::<Result<Vec<u64>, Error>>().map(|needs| needs.into_iter().max().unwrap_or(0))
    }

    /// Whether there is as much scratch memory as these weights need for x.
    pub fn has_room(&self) -> bool {
        self.check().is_ok_and(|sizes| {
            let (counts, rest) = Plan::of(self.weights.gpu(), sizes).room(self.weights.gpu(), sizes);
            counts + rest <= self.scratch.bytes()
        })
    }

    /// Makes scratch memory ready, when the stream gets there. Layers leave it ready for the next.
    ///
    /// # Errors
    /// What the driver says.
    pub fn prepare(gpu: &Gpu, on: &CudaStream, scratch: DeviceSpan<'_>) -> Result<(), Error> {
        gpu.alive()?;
        gpu.check("clear memory", driver::fill(on, scratch, 0))
    }

    /// Starts it. Nothing waits, nothing is taken; all of it can be captured in a graph.
    ///
    /// # Errors
    /// [`Error::Weights`], [`Error::Shape`] for memory that does not fit the weights,
    /// [`Error::TooOld`] before Hopper, or what the driver says.
    pub fn start(&self, on: &CudaStream) -> Result<(), Error> {
        self.start_with(on, None)
    }

    /// [`start`](Self::start) with counts of the caller's, [`count_room`](Self::count_room) bytes
    /// of zeros, which it leaves as zeros. Scratch memory then need not be ready. Layers that share
    /// counts must not run at the same time.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn start_with(&self, on: &CudaStream, counts: Option<DeviceSpan<'_>>) -> Result<(), Error> {
        self.start_by(on, counts, Plan::of)
    }

    fn start_by(
        &self,
        on: &CudaStream,
        counts: Option<DeviceSpan<'_>>,
        plan_of: impl FnOnce(&Gpu, Sizes) -> Plan,
    ) -> Result<(), Error> {
        let gpu = self.weights.gpu();
        gpu.alive()?;
        let sizes = self.check()?;
        if sizes.tokens == 0 || sizes.outputs == 0 {
            return Ok(());
        }
        let plan = plan_of(gpu, sizes);
        let (room, rest) = plan.room(gpu, sizes);
        check_room(self.scratch, room + rest)?;
        let (counts, work) = (counts.unwrap_or(self.scratch), self.scratch.part(room..room + rest));
        check_room(counts, plan.count_bytes(gpu, sizes))?;
        let view = || self.view(sizes, counts, work);
        match plan {
            Plan::Narrow(narrow) => self.narrow(on, narrow, view()),
            Plan::Wide(wide) => self.wide(on, wide, view()),
            Plan::Plain(_) if self.output == Output::Gated => {
                Err(Error::Weights { what: "gates are computed on Hopper alone, and for up to 1536 tokens" })
            }
            Plan::Plain(pieces) => self.plain(on, sizes, pieces, work),
        }
    }

    fn view(&self, sizes: Sizes, counts: DeviceSpan<'_>, parts: DeviceSpan<'_>) -> LinearView {
        LinearView {
            weights: self.weights.view(),
            x: self.x.address(),
            bias: self.bias.map_or(0, DeviceSpan::address),
            y: self.y.address(),
            parts: parts.address(),
            counts: counts.address(),
            outputs: sizes.outputs,
            inputs: sizes.inputs,
            tokens: sizes.tokens,
            output: self.output as u32,
        }
    }

    fn narrow(&self, on: &CudaStream, narrow: Narrow, view: LinearView) -> Result<(), Error> {
        let gpu = self.weights.gpu();
        let narrow = if self.overlaps { narrow } else { narrow.alone() };
        let kernel = kernel(gpu, |kernels| &mut kernels.narrow, narrow, "linear_narrow", || narrow.source())?;
        let (panel, launch) = narrow.launch(gpu, view.inputs, view.tokens);
        let launch = Launch { overlaps: self.overlaps, ..launch };
        // SAFETY: the arguments of `linear_narrow`; `check` and `start` saw that all memory is as
        // large as it must be.
        let started = unsafe { launch.start_allowed(on, &kernel, &(view, panel)) };
        gpu.check("start a linear layer", started)
    }

    fn wide(&self, on: &CudaStream, wide: Wide, view: LinearView) -> Result<(), Error> {
        let gpu = self.weights.gpu();
        let wide = if self.output == Output::Gated { wide.gated() } else { wide };
        let kernel = kernel(gpu, |kernels| &mut kernels.wide, wide, "linear_wide", || wide.source())?;
        let sizes = Sizes { outputs: view.outputs, inputs: view.inputs, tokens: view.tokens };
        let launch = Launch { overlaps: self.overlaps, ..wide.launch(gpu, sizes) };
        let x = TensorMap::rows(self.x, sizes.inputs, sizes.tokens, wide.share());
        let x = gpu.check("describe x to the copy engine", x)?;
        // SAFETY: the arguments of `linear_wide`, as above.
        let started = unsafe { launch.start_allowed(on, &kernel, &(view, x)) };
        gpu.check("start a linear layer", started)
    }

    /// Some rows at a time: made plain on a stream beside, and multiplied by the vendor's library.
    /// While some are multiplied, the next are made plain, as far as multiprocessors are free.
    fn plain(
        &self,
        on: &CudaStream,
        sizes: Sizes,
        pieces: Pieces,
        work: DeviceSpan<'_>,
    ) -> Result<(), Error> {
        let gpu = self.weights.gpu();
        let (rows, row_bytes) = (pieces.rows, u64::from(sizes.inputs) * 2);
        let piece_bytes = u64::from(rows) * row_bytes;
        let workspace = work.part(u64::from(pieces.plain_rows(sizes.outputs)) * row_bytes..work.bytes());
        let side = beside(gpu, on)?;
        let ordered = |done: Result<(), DriverError>| gpu.check("order two streams", done);
        ordered(side.join(on))?;
        let mut free = [None, None];
        for (i, first) in (0..sizes.outputs).step_by(rows as usize).enumerate() {
            let some = rows.min(sizes.outputs - first);
            let (half, range) = (i % 2, first..first + some);
            let begin = half as u64 * piece_bytes;
            let plain = work.part(begin..begin + u64::from(some) * row_bytes);
            free[half].as_ref().map_or(Ok(()), |event| ordered(side.wait(event)))?;
            self.make_plain(&side, range.clone(), plain)?;
            ordered(on.join(&side))?;
            let mut kernels = gpu.linear_kernels();
            let vendor = match &mut kernels.vendor {
                Some(vendor) => vendor,
                none => none.insert(Vendor::new(gpu)?),
            };
            vendor.multiply(gpu, on, self, sizes, range, plain, workspace)?;
            free[half] = Some(gpu.check("record an event", on.record_event(None))?);
        }
        Ok(())
    }

    /// Whether everything fits, and the sizes.
    fn check(&self) -> Result<Sizes, Error> {
        let header = self.weights.header();
        let row_bytes = u64::from(header.row) * 128;
        if row_bytes == 0 {
            return Err(Error::Weights { what: "they are no matrix: freeze them with the entries of a row" });
        }
        let x = self.x.check(row_bytes, 16, "whole rows of x, aligned to 16")?;
        let tokens = u32::try_from(x.bytes() / row_bytes).unwrap_or(u32::MAX);
        let sizes = sizes(header, tokens)?;
        let value = if self.output == Output::Fp32 { 4 } else { 2 };
        let y = self.y.check(value, value, "aligned results")?;
        if self.output == Output::Gated && !sizes.outputs.is_multiple_of(16) {
            return Err(Error::Weights {
                what: "gates and values do not take turns in eights: rows are no multiple of 16",
            });
        }
        if y.bytes() < u64::from(tokens) * self.output.row_bytes(sizes.outputs) {
            return Err(Error::Shape {
                bytes: y.bytes(),
                address: y.address(),
                need: "a result for each token and output",
            });
        }
        if let Some(bias) = self.bias.filter(|bias| bias.bytes() < 2 * u64::from(sizes.outputs)) {
            return Err(Error::Shape {
                bytes: bias.bytes(),
                address: bias.address(),
                need: "a bias for each output",
            });
        }
        Ok(sizes)
    }
}

/// A stream beside this one, always the same, so that both are in the same capture or in none.
fn beside(gpu: &Gpu, on: &CudaStream) -> Result<Arc<CudaStream>, Error> {
    match gpu.linear_kernels().beside.entry(on.cu_stream() as usize) {
        Entry::Occupied(known) => Ok(known.get().clone()),
        Entry::Vacant(new) => Ok(new.insert(gpu.stream()?).clone()),
    }
}

/// A kernel of a shape, loaded at its first use.
fn kernel<Shape: Copy + Eq + Hash>(
    gpu: &Gpu,
    known: fn(&mut LinearKernels) -> &mut HashMap<Shape, CudaFunction>,
    shape: Shape,
    name: &str,
    source: impl FnOnce() -> Source,
) -> Result<CudaFunction, Error> {
    let mut kernels = gpu.linear_kernels();
    if let Some(kernel) = known(&mut kernels).get(&shape) {
        return Ok(kernel.clone());
    }
    let kernel = gpu.check("find the kernels", gpu.module(&source())?.load_function(name))?;
    gpu.check("allow shared memory", driver::allow(&kernel, MOST_SHARED))?;
    known(&mut kernels).insert(shape, kernel.clone());
    Ok(kernel)
}

fn check_room(memory: DeviceSpan<'_>, need: u64) -> Result<(), Error> {
    if memory.bytes() < need || !memory.address().is_multiple_of(ALIGN) {
        let need = "as much memory to work in as `room` and `count_room` say, aligned to 128 bytes";
        return Err(Error::Shape { bytes: memory.bytes(), address: memory.address(), need });
    }
    Ok(())
}

fn sizes(weights: &FrozenHeader, tokens: u32) -> Result<Sizes, Error> {
    if !matches!(weights.codec, Codec::Bf16(_)) || weights.target != Target::X4Over3 {
        return Err(Error::Weights { what: "they are not bf16 at 4/3x" });
    }
    let refused = Error::Weights { what: "they are no matrix of fewer than 2^32 rows and columns" };
    let inputs = weights.row.checked_mul(64).filter(|&inputs| inputs > 0).ok_or(refused.clone())?;
    let outputs = u32::try_from(weights.entries() / u64::from(weights.row)).map_err(|_| refused)?;
    Ok(Sizes { outputs, inputs, tokens })
}
