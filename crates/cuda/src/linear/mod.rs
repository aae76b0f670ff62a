//! Linear layers: y = W x, with an optional bias. W is a bf16 matrix at 4/3x, frozen or writable; x
//! has one row per token.
//!
//! Weights are read once, packed, and become plain only in registers or, for very many tokens, in
//! scratch memory for cuBLASLt. The kernel follows from the shape, by measurement ([`plan`]).

mod grouped;
mod load;
mod plain_form;
mod plan;
mod portable;
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
pub use grouped::{Combine, GroupedLinear, Route};
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

/// Type of a linear layer's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Output {
    /// bf16, rounded to nearest.
    #[default]
    Bf16,
    /// fp32, unrounded.
    Fp32,
    /// bf16 of silu(gate) * value, for weights in which eight rows of gates alternate with eight
    /// rows of values: half as many outputs as rows. On Hopper, for up to 1536 tokens; by the portable
    /// kernel of other GPUs, for up to 32 and not for tight weights.
    Gated,
}

impl Output {
    /// Returns the bytes of a row of y for weights with `rows` rows.
    fn row_bytes(self, rows: u32) -> u64 {
        match self {
            Self::Bf16 => 2 * u64::from(rows),
            Self::Fp32 => 4 * u64::from(rows),
            Self::Gated => u64::from(rows),
        }
    }
}

/// A linear layer on a number of tokens.
#[derive(Debug, Clone, Copy)]
pub struct Linear<'a> {
    /// A bf16 matrix at 4/3x.
    pub weights: Weights<'a>,
    /// A row of bf16 per token, contiguous and aligned to 16 bytes.
    pub x: DeviceSpan<'a>,
    /// A bf16 value per output.
    pub bias: Option<DeviceSpan<'a>>,
    /// A row of outputs per token.
    pub y: DeviceSpan<'a>,
    /// Type of `y`.
    pub output: Output,
    /// Scratch memory of at least [`room`](Linear::room) bytes, initialised once by
    /// [`prepare`](Linear::prepare). Layers that share it must not run at the same time.
    pub scratch: DeviceSpan<'a>,
    /// Uses programmatic dependent launch. The weights must be complete before the preceding kernel
    /// begins; x may be that kernel's output.
    pub overlaps: bool,
}

/// Loaded kernels by shape.
#[derive(Debug, Default)]
pub(crate) struct LinearKernels {
    narrow: HashMap<Narrow, CudaFunction>,
    wide: HashMap<Wide, CudaFunction>,
    unpack: HashMap<(), CudaFunction>,
    /// By eights of tokens.
    portable: HashMap<u32, CudaFunction>,
    /// Those of `route.cu`, by name.
    route: HashMap<&'static str, CudaFunction>,
    vendor: Option<Vendor>,
    /// Side streams, by the address of the stream that each accompanies.
    side_streams: HashMap<usize, Arc<CudaStream>>,
}

/// The sizes N, K and M.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Sizes {
    pub(crate) outputs: u32,
    pub(crate) inputs: u32,
    pub(crate) tokens: u32,
}

impl Linear<'_> {
    /// Returns the bytes of scratch memory for these weights and up to `tokens` tokens.
    ///
    /// # Errors
    /// [`Error::Weights`] unless the weights are a bf16 matrix at 4/3x.
    pub fn room(gpu: &Gpu, weights: &FrozenHeader, tokens: u32) -> Result<u64, Error> {
        Self::most(gpu, weights, tokens, |plan, sizes| {
            let (counts, rest) = plan.room(gpu, sizes);
            counts + rest
        })
    }

    /// Returns the bytes of fix-up counters for these weights and up to `tokens` tokens: the part
    /// of scratch memory that must be zero.
    ///
    /// # Errors
    /// As for [`room`](Self::room).
    pub fn count_room(gpu: &Gpu, weights: &FrozenHeader, tokens: u32) -> Result<u64, Error> {
        Self::most(gpu, weights, tokens, |plan, sizes| plan.count_bytes(gpu, sizes))
    }

    /// Returns the most that any plan for up to `tokens` tokens needs.
    fn most(
        gpu: &Gpu,
        weights: &FrozenHeader,
        tokens: u32,
        need: impl Fn(Plan, Sizes) -> u64,
    ) -> Result<u64, Error> {
        let needs = Plan::steps(tokens).map(|tokens| {
            let sizes = sizes(weights, tokens)?;
            let plan = Plan::of(gpu, sizes);
            Ok(need(plan, sizes).max(need(plan.for_tight(sizes), sizes)))
        });
        needs.collect::<Result<Vec<u64>, Error>>().map(|needs| needs.into_iter().max().unwrap_or(0))
    }

    /// Returns true if scratch memory suffices for these weights and x.
    pub fn has_room(&self) -> bool {
        self.check().is_ok_and(|sizes| {
            let (counts, rest) = Plan::of(self.weights.gpu(), sizes).room(self.weights.gpu(), sizes);
            counts + rest <= self.scratch.bytes()
        })
    }

    /// Initialises scratch memory, in stream order. Layers leave it initialised.
    ///
    /// # Errors
    /// A driver error.
    pub fn prepare(gpu: &Gpu, on: &CudaStream, scratch: DeviceSpan<'_>) -> Result<(), Error> {
        gpu.alive()?;
        gpu.check("clear memory", driver::fill(on, scratch, 0))
    }

    /// Enqueues the layer; never waits or allocates, so that it can be captured in a graph.
    ///
    /// # Errors
    /// [`Error::Weights`], [`Error::Shape`] for memory that does not fit the weights,
    /// [`Error::Vendor`] for a plan that needs cuBLASLt, or an error of the compiler or the driver.
    pub fn start(&self, on: &CudaStream) -> Result<(), Error> {
        self.start_with(on, None)
    }

    /// [`start`](Self::start) with the caller's counters, [`count_room`](Self::count_room) bytes of
    /// zeros, which it leaves zero. Scratch memory then needs no initialisation. Layers that share
    /// counters must not run at the same time.
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
        let plan = if self.weights.are_tight() { plan.for_tight(sizes) } else { plan };
        let (room, rest) = plan.room(gpu, sizes);
        check_room(self.scratch, room + rest)?;
        let (counts, work) = (counts.unwrap_or(self.scratch), self.scratch.part(room..room + rest));
        check_room(counts, plan.count_bytes(gpu, sizes))?;
        let view = || self.view(sizes, counts, work);
        match plan {
            Plan::Narrow(narrow) => self.narrow(on, narrow, view()),
            Plan::Wide(wide) => self.wide(on, wide, view()),
            Plan::Portable(eights) => self.portable(on, eights, view()),
            Plan::Plain(_) if self.output == Output::Gated => Err(Error::Weights {
                what: "gates are computed for up to 1536 tokens on Hopper, on other GPUs for up to 32",
            }),
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
            route: 0,
        }
    }

    fn narrow(&self, on: &CudaStream, narrow: Narrow, view: LinearView) -> Result<(), Error> {
        let gpu = self.weights.gpu();
        let narrow = if self.overlaps { narrow } else { narrow.alone() };
        let kernel = kernel(gpu, |kernels| &mut kernels.narrow, narrow, "linear_narrow", || narrow.source())?;
        let (panel, launch) = narrow.launch(gpu, view.inputs, view.tokens);
        let launch = Launch { overlaps: self.overlaps, ..launch };
        // SAFETY: the arguments of `linear_narrow`; `check` and `start` verified the size of all
        // memory.
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

    /// Unpacks rows in pieces on a side stream and multiplies each piece with cuBLASLt. The next
    /// piece is unpacked while one is multiplied, as far as SMs are free.
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
        let side = side_stream(gpu, on)?;
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

    /// Checks all sizes and returns them.
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

/// Returns the side stream of a stream, always the same, so that both are in the same capture or in
/// none.
fn side_stream(gpu: &Gpu, on: &CudaStream) -> Result<Arc<CudaStream>, Error> {
    match gpu.linear_kernels().side_streams.entry(on.cu_stream() as usize) {
        Entry::Occupied(known) => Ok(known.get().clone()),
        Entry::Vacant(new) => Ok(new.insert(gpu.stream()?).clone()),
    }
}

/// Returns the kernel of a shape, loaded at first use.
fn kernel<Shape: Copy + Eq + Hash>(
    gpu: &Gpu,
    known: fn(&mut LinearKernels) -> &mut HashMap<Shape, CudaFunction>,
    shape: Shape,
    name: &str,
    source: impl FnOnce() -> Source,
) -> Result<CudaFunction, Error> {
    if let Some(kernel) = known(&mut gpu.linear_kernels()).get(&shape) {
        return Ok(kernel.clone());
    }
    // Without the lock, so that several threads can compile.
    let kernel = gpu.check("find the kernels", gpu.module(&source())?.load_function(name))?;
    gpu.check("allow shared memory", driver::allow(&kernel, MOST_SHARED))?;
    known(&mut gpu.linear_kernels()).insert(shape, kernel.clone());
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
