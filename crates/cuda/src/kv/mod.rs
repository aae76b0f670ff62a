//! KV caches of attention in compressed memory, at 4/3x: pages at fixed places, in memory that the
//! caller gives.
//!
//! Nothing here allocates or waits: every call enqueues work on a stream, and can be captured in a
//! graph.

mod attention;
mod fresh;
mod host;
mod plan;
mod shape;

use std::sync::{Arc, Mutex, PoisonError};

use buddy_codec::Bf16;
use buddy_core::Target;
use cudarc::driver::{CudaFunction, CudaStream};

pub(crate) use attention::Attentions;
pub use attention::{Attend, AttentionArguments};
pub use fresh::Fresh;
pub use host::{HostKv, HostRows};
pub use plan::AttentionPlan;
pub use shape::{KvBytes, KvMemory, KvShape};

use crate::{
    DeviceSpan, Error, Gpu,
    driver::{self, Launch},
    layout::Memory,
    source::Source,
};
use shape::{ALIGN, SIXTEEN, fits};

/// Threads of the kernels in `kv.cu`.
const APPEND_THREADS: u64 = 128;
const TRAIN_THREADS: u32 = 256;
const READ_WARPS: u64 = 2;

/// A cache as a kernel argument: the struct `KvCache` of `kv.cuh`, passed by value.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct KvView {
    /// Addresses of its entries.
    pub memory: Memory,
    windows: u64,
    shifts: u64,
    layers: u32,
    pages: u32,
    heads: u32,
    parts: u32,
    page_tokens: u32,
    reserved: u32,
}

/// The struct `KvRows` of `kv.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct RowsView {
    keys: u64,
    values: u64,
    layer_stride: u64,
    token_stride: u64,
    layer: u32,
    layers: u32,
    tokens: u32,
    reserved: u32,
}

/// Plain bf16 keys and values of tokens, for one or more layers; the heads of a token are
/// contiguous. Strides are in values and multiples of 8; memory is aligned to 16 bytes.
#[derive(Debug, Clone, Copy)]
pub struct KvRows<'a> {
    /// The keys.
    pub keys: DeviceSpan<'a>,
    /// The values.
    pub values: DeviceSpan<'a>,
    /// Values between layers.
    pub layer_stride: u64,
    /// Values between tokens.
    pub token_stride: u64,
    /// The first layer.
    pub layer: u32,
    /// Number of layers.
    pub layers: u32,
    /// Number of tokens.
    pub tokens: u32,
}

/// The kernels of `kv.cu`, and those of attention, compiled at first use.
#[derive(Debug)]
pub(crate) struct KvKernels {
    append: CudaFunction,
    train: CudaFunction,
    read: CudaFunction,
    pub(crate) attentions: Mutex<Attentions>,
}

/// A KV cache over the caller's memory.
#[derive(Debug)]
pub struct KvCache<'a> {
    gpu: Gpu,
    shape: KvShape,
    memory: KvMemory<'a>,
    windows: DeviceSpan<'a>,
    kernels: Arc<KvKernels>,
}

impl KvKernels {
    pub(crate) fn new(gpu: &Gpu) -> Result<Self, Error> {
        let module = gpu.module(&Source::kv())?;
        let find = |name| gpu.check("find the kernels", module.load_function(name));
        Ok(Self {
            append: find("kv_append")?,
            train: find("kv_train")?,
            read: find("kv_read")?,
            attentions: Mutex::default(),
        })
    }
}

impl<'a> KvCache<'a> {
    /// Creates a cache over the caller's memory, undefined until [`Self::clear`].
    ///
    /// # Errors
    /// [`Error::Kv`], [`Error::Shape`] if memory is too small, or an error of the compiler or the
    /// driver.
    pub fn over(gpu: &Gpu, shape: KvShape, memory: KvMemory<'a>) -> Result<Self, Error> {
        let (shape, memory) = (shape.check()?, memory.check(shape, None)?);
        let [windows, _, end] = shape.metadata();
        let windows = memory.metadata.part(windows..end);
        Ok(Self { gpu: gpu.clone(), shape, memory, windows, kernels: gpu.kv_kernels()? })
    }

    /// Creates a cache whose windows and fault lie in memory of their own, aligned to 128 bytes.
    /// `memory.metadata` then needs [`KvBytes::nibbles`] only, so that a layer fills its pages
    /// exactly.
    ///
    /// # Errors
    /// As for [`Self::over`].
    pub fn with_windows(
        gpu: &Gpu,
        shape: KvShape,
        memory: KvMemory<'a>,
        windows: DeviceSpan<'a>,
    ) -> Result<Self, Error> {
        let (shape, memory) = (shape.check()?, memory.check(shape, Some(windows))?);
        Ok(Self { gpu: gpu.clone(), shape, memory, windows, kernels: gpu.kv_kernels()? })
    }

    /// Returns the shape.
    pub fn shape(&self) -> KvShape {
        self.shape
    }

    /// Fills all tokens with zeros, resets the windows to those of an untrained codec, and the shifts to
    /// zero.
    ///
    /// # Errors
    /// A driver error.
    pub fn clear(&self, on: &CudaStream) -> Result<(), Error> {
        let bytes = self.shape.bytes();
        let (shifts, fault) = (self.shape.shifts(), bytes.windows - ALIGN);
        let parts = [
            (self.memory.metadata.part(0..bytes.nibbles), 0),
            (self.windows.part(0..shifts), Bf16::default().window()),
            (self.windows.part(shifts..fault), 0),
            (self.windows.part(fault..bytes.windows), 0xff),
        ];
        for (span, value) in parts {
            self.gpu.check("clear a cache", driver::fill(on, span, value))?;
        }
        Ok(())
    }

    /// Chooses the windows and shifts of the rows' layers from these tokens, for each head's keys and
    /// values. Stored tokens are read with them. So call it before the first append to these layers,
    /// and never after; or with the tokens' slots, as for [`Self::append`], and at any time: then it
    /// chooses only what is not chosen yet, from the tokens whose slot is not negative. Shifts are chosen
    /// before any token is stored, a window by the first 64 tokens or more.
    ///
    /// # Errors
    /// [`Error::Kv`], [`Error::Shape`], or a driver error.
    pub fn train(
        &self,
        on: &CudaStream,
        rows: &KvRows<'_>,
        slots: Option<DeviceSpan<'_>>,
    ) -> Result<(), Error> {
        let view = rows.check(self.shape)?;
        if let Some(slots) = slots {
            fits(slots, 8 * u64::from(rows.tokens), 8, "a slot of 8 bytes for each token")?;
        }
        let blocks = u64::from(rows.layers) * u64::from(self.shape.heads) * 2;
        // SAFETY: the arguments of `kv_train`, checked above.
        let started = unsafe {
            overlapping(Launch::row(blocks, TRAIN_THREADS)).start(
                on,
                &self.kernels.train,
                &(self.view(), view, slots.map_or(0, DeviceSpan::address)),
            )
        };
        self.gpu.check("start training", started)
    }

    /// Appends tokens: row i to slot `slots[i]` (64 bits), which is page times page size plus
    /// position in the page. Slots out of range are skipped. No two rows may have the same slot.
    ///
    /// # Errors
    /// As for [`Self::train`].
    pub fn append(&self, on: &CudaStream, rows: &KvRows<'_>, slots: DeviceSpan<'_>) -> Result<(), Error> {
        let view = rows.check(self.shape)?;
        fits(slots, 8 * u64::from(rows.tokens), 8, "a slot of 8 bytes for each token")?;
        let threads = 4 * u64::from(rows.tokens) * u64::from(2 * self.shape.heads * self.shape.parts());
        let row = Launch::row(threads.div_ceil(APPEND_THREADS), APPEND_THREADS as u32);
        let launch = Launch { blocks: (row.blocks.0, rows.layers), ..row };
        // SAFETY: the arguments of `kv_append`, checked above; the kernel checks slots.
        let started = unsafe {
            overlapping(launch).start(on, &self.kernels.append, &(self.view(), view, slots.address()))
        };
        self.gpu.check("start appending", started)
    }

    /// Reads `count` tokens of one sequence from `first` on. `pages` are the indices of its pages
    /// (32 bits each); keys and values are written as `[token][head]`.
    ///
    /// # Errors
    /// As for [`Self::train`].
    ///
    /// # Safety
    /// The pages of these tokens are pages of the cache.
    pub unsafe fn read(
        &self,
        on: &CudaStream,
        layer: u32,
        pages: DeviceSpan<'_>,
        (first, count): (u32, u32),
        [keys, values]: [DeviceSpan<'_>; 2],
    ) -> Result<(), Error> {
        let shape = self.shape;
        if layer >= shape.layers || count == 0 || first.checked_add(count).is_none() {
            return Err(Error::Kv(format!("{count} tokens from {first} on of layer {layer} cannot be read")));
        }
        let bytes = u64::from(count) * u64::from(shape.heads * shape.head_values) * 2;
        let table = 4 * u64::from((first + count).div_ceil(shape.page_tokens));
        fits(pages, table, 4, "4 bytes for each page of the sequence")?;
        [keys, values]
            .into_iter()
            .try_for_each(|to| fits(to, bytes, 16, "room for all heads of each token"))?;
        let sixteens = u64::from((first % SIXTEEN + count).div_ceil(SIXTEEN));
        let warps = sixteens * u64::from(shape.heads * shape.parts());
        let launch = Launch::row(warps.div_ceil(READ_WARPS), READ_WARPS as u32 * 32);
        let arguments = (self.view(), layer, pages.address(), first, count, keys.address(), values.address());
        // SAFETY: the arguments of `kv_read`, checked above, and the caller's promise.
        let started = unsafe { overlapping(launch).start(on, &self.kernels.read, &arguments) };
        self.gpu.check("start reading", started)
    }

    /// Returns the cache as kernels take it.
    pub fn view(&self) -> KvView {
        let KvShape { layers, pages, heads, page_tokens, .. } = self.shape;
        let KvMemory { entries, overflow, metadata } = self.memory;
        let windows = self.windows.address();
        let memory = Memory {
            device: entries.address(),
            buddy: overflow.address(),
            nibbles: metadata.address(),
            pages: 0,
            fault: windows + self.shape.bytes().windows - ALIGN,
            entries: self.shape.entries(),
            device_bytes: Target::X4Over3.device_bytes() as u32,
            reserved: 0,
        };
        let (shifts, parts) = (windows + self.shape.shifts(), self.shape.parts());
        KvView { memory, windows, shifts, layers, pages, heads, parts, page_tokens, reserved: 0 }
    }
}

impl KvRows<'_> {
    fn check(&self, shape: KvShape) -> Result<RowsView, Error> {
        let Self { keys, values, layer_stride, token_stride, layer, layers, tokens } = *self;
        let row = u64::from(shape.heads * shape.head_values);
        if layers == 0 || tokens == 0 || layer.checked_add(layers).is_none_or(|end| end > shape.layers) {
            return Err(Error::Kv(format!(
                "{tokens} tokens of layers {layer} and on, {layers} of them, do not fit"
            )));
        }
        if !layer_stride.is_multiple_of(8) || !token_stride.is_multiple_of(8) {
            return Err(Error::Kv("strides are multiples of 8 values".to_owned()));
        }
        let last = u64::from(layers - 1) * layer_stride + u64::from(tokens - 1) * token_stride + row;
        [keys, values].into_iter().try_for_each(|span| {
            fits(span, 2 * last, 16, "all heads of each token, at the strides given, aligned to 16")
        })?;
        let (keys, values) = (keys.address(), values.address());
        Ok(RowsView { keys, values, layer_stride, token_stride, layer, layers, tokens, reserved: 0 })
    }
}

impl Gpu {
    /// Returns the kernels of KV caches, compiled or cached.
    pub(crate) fn kv_kernels(&self) -> Result<Arc<KvKernels>, Error> {
        let mut kept = self.kv().lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernels) = kept.as_ref() {
            return Ok(kernels.clone());
        }
        Ok(kept.insert(Arc::new(KvKernels::new(self)?)).clone())
    }
}

/// Uses programmatic dependent launch; these kernels synchronise themselves.
pub(crate) fn overlapping(launch: Launch) -> Launch {
    Launch { overlaps: true, ..launch }
}
