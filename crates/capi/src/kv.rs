//! KV caches in compressed memory: a struct of the caller describes the cache, so that there is
//! nothing to create or free.

use buddy_cuda::{Attend, DeviceSpan, Gpu, KvCache, KvMemory, KvRows, KvShape};

use crate::{
    error::{Failure, guard},
    state,
    types::{Code, DevicePointer, Stream},
};

/// A cache: its shape, and the caller's memory.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Kv {
    /// Layers.
    pub layers: u32,
    /// Pages per layer.
    pub pages: u32,
    /// KV heads.
    pub heads: u32,
    /// Head dimension.
    pub head_values: u32,
    /// Tokens per page.
    pub page_tokens: u32,
    /// Reserved.
    pub reserved: u32,
    /// Device memory for entries.
    pub entries: DevicePointer,
    /// Host or device memory for overflow.
    pub overflow: DevicePointer,
    /// Device memory for metadata.
    pub metadata: DevicePointer,
}

/// Bytes of a cache's memory.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct KvSizes {
    /// For entries.
    pub entries: u64,
    /// For overflow.
    pub overflow: u64,
    /// For metadata.
    pub metadata: u64,
    /// Scratch memory of attention.
    pub scratch: u64,
}

/// Plain keys and values of tokens.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Rows {
    /// The keys.
    pub keys: DevicePointer,
    /// The values.
    pub values: DevicePointer,
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
    /// Reserved.
    pub reserved: u32,
}

/// One attention call: `buddyKvAttention` of `buddy.h`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct KvAttention {
    /// The queries.
    pub queries: DevicePointer,
    /// The output.
    pub out: DevicePointer,
    /// Page table of each sequence.
    pub table: DevicePointer,
    /// Tokens of each sequence.
    pub lengths: DevicePointer,
    /// Scratch memory.
    pub scratch: DevicePointer,
    /// Entries of the page table per sequence.
    pub table_pages: u32,
    /// Number of sequences.
    pub sequences: u32,
    /// Query tokens of each sequence.
    pub tokens: u32,
    /// Query heads per KV head.
    pub group: u32,
    /// The layer.
    pub layer: u32,
    /// Scale of the logits.
    pub scale: f32,
}

impl Kv {
    fn shape(&self) -> KvShape {
        let Self { layers, pages, heads, head_values, page_tokens, .. } = *self;
        KvShape { layers, pages, heads, head_values, page_tokens }
    }

    /// # Safety
    /// The memory exists, with the bytes that the shape needs.
    unsafe fn open(&self, gpu: &Gpu) -> Result<KvCache<'static>, Failure> {
        let shape = self.shape().check()?;
        let bytes = shape.bytes();
        // SAFETY: the caller's promise.
        let memory = unsafe {
            KvMemory {
                entries: DeviceSpan::from_raw(self.entries, bytes.entries),
                overflow: DeviceSpan::from_raw(self.overflow, bytes.overflow),
                metadata: DeviceSpan::from_raw(self.metadata, bytes.metadata),
            }
        };
        Ok(KvCache::over(gpu, shape, memory)?)
    }
}

impl Rows {
    /// # Safety
    /// The memory exists, at the given strides.
    unsafe fn open(&self, kv: &Kv) -> KvRows<'static> {
        let Self { keys, values, layer_stride, token_stride, layer, layers, tokens, .. } = *self;
        let steps = u64::from(layers.saturating_sub(1)).saturating_mul(layer_stride);
        let steps = steps.saturating_add(u64::from(tokens.saturating_sub(1)).saturating_mul(token_stride));
        let bytes = steps.saturating_add(u64::from(kv.heads) * u64::from(kv.head_values)).saturating_mul(2);
        // SAFETY: the caller's promise.
        let span = |address| unsafe { DeviceSpan::from_raw(address, bytes) };
        KvRows { keys: span(keys), values: span(values), layer_stride, token_stride, layer, layers, tokens }
    }
}

/// Writes the sizes of a cache's memory.
///
/// # Safety
/// `kv` and `sizes` are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyKvSizesOf(kv: *const Kv, sequences: u32, sizes: *mut KvSizes) -> Code {
    guard(|| {
        // SAFETY: the caller's promise.
        let (shape, sizes) = unsafe { (dereference(kv, "the cache")?.shape().check()?, sizes.as_mut()) };
        let bytes = shape.bytes();
        let scratch = shape.scratch_bytes(sequences, state::gpu()?.multiprocessors());
        *sizes.ok_or_else(|| null("sizes"))? =
            KvSizes { entries: bytes.entries, overflow: bytes.overflow, metadata: bytes.metadata, scratch };
        Ok(())
    })
}

/// Fills all tokens with zeros.
///
/// # Safety
/// `kv` is null or describes memory that exists until the stream has passed this call; `stream`
/// belongs to the current context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyKvClear(kv: *const Kv, stream: Stream) -> Code {
    guard(|| {
        let gpu = state::gpu()?;
        // SAFETY: the caller's promises.
        let (cache, stream) =
            unsafe { (dereference(kv, "the cache")?.open(&gpu)?, gpu.borrow_stream(stream)?) };
        Ok(cache.clear(&stream)?)
    })
}

/// Chooses windows and shifts from tokens.
///
/// # Safety
/// As for [`buddyKvClear`], and for the rows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyKvTrain(kv: *const Kv, rows: *const Rows, stream: Stream) -> Code {
    guard(|| {
        let gpu = state::gpu()?;
        // SAFETY: the caller's promises.
        unsafe {
            let (kv, rows) = (dereference(kv, "the cache")?, dereference(rows, "rows")?);
            Ok(kv.open(&gpu)?.train(&*gpu.borrow_stream(stream)?, &rows.open(kv), None)?)
        }
    })
}

/// Appends tokens.
///
/// # Safety
/// As for [`buddyKvTrain`]; `slots` has 8 bytes for each token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyKvAppend(
    kv: *const Kv,
    rows: *const Rows,
    slots: DevicePointer,
    stream: Stream,
) -> Code {
    guard(|| {
        let gpu = state::gpu()?;
        // SAFETY: the caller's promises.
        unsafe {
            let (kv, rows) = (dereference(kv, "the cache")?, dereference(rows, "rows")?);
            let slots = DeviceSpan::from_raw(slots, 8 * u64::from(rows.tokens));
            Ok(kv.open(&gpu)?.append(&*gpu.borrow_stream(stream)?, &rows.open(kv), slots)?)
        }
    })
}

/// Reads tokens of one sequence.
///
/// # Safety
/// As for [`buddyKvClear`]; `pages` has the sequence's pages, which are pages of the cache, and
/// `keys` and `values` have room for all heads of each token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyKvRead(
    kv: *const Kv,
    layer: u32,
    pages: DevicePointer,
    first: u32,
    count: u32,
    keys: DevicePointer,
    values: DevicePointer,
    stream: Stream,
) -> Code {
    guard(|| {
        let gpu = state::gpu()?;
        // SAFETY: the caller's promises.
        unsafe {
            let kv = dereference(kv, "the cache")?;
            let cache = kv.open(&gpu)?;
            let end = u64::from(first) + u64::from(count);
            let pages = DeviceSpan::from_raw(pages, 4 * end.div_ceil(u64::from(kv.page_tokens)));
            let bytes = 2 * u64::from(count) * u64::from(kv.heads) * u64::from(kv.head_values);
            let to = [keys, values].map(|address| DeviceSpan::from_raw(address, bytes));
            Ok(cache.read(&*gpu.borrow_stream(stream)?, layer, pages, (first, count), to)?)
        }
    })
}

/// Computes attention of the last tokens of each sequence.
///
/// # Safety
/// As for [`buddyKvClear`]; `attention` is null or describes existing memory, lengths of appended
/// tokens, and pages of the cache.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyKvAttend(kv: *const Kv, attention: *const KvAttention, stream: Stream) -> Code {
    guard(|| {
        let gpu = state::gpu()?;
        // SAFETY: the caller's promises.
        unsafe {
            let (kv, attention) =
                (dereference(kv, "the cache")?, dereference(attention, "the attention call")?);
            let cache = kv.open(&gpu)?;
            Ok(cache.attend(&*gpu.borrow_stream(stream)?, &attention.open(kv, &cache))?)
        }
    })
}

impl KvAttention {
    /// # Safety
    /// The memory exists.
    unsafe fn open(&self, kv: &Kv, cache: &KvCache<'_>) -> Attend<'static> {
        let Self { table_pages, sequences, tokens, group, layer, scale, .. } = *self;
        // SAFETY: the caller's promise.
        let span = |address, bytes| unsafe { DeviceSpan::from_raw(address, bytes) };
        let numbers = [sequences, tokens, kv.heads, group, kv.head_values, 2].map(u64::from);
        let bytes = numbers.into_iter().fold(1, u64::saturating_mul);
        Attend {
            layer,
            sequences,
            tokens,
            group,
            scale,
            queries: span(self.queries, bytes),
            out: span(self.out, bytes),
            table: span(self.table, 4 * u64::from(sequences) * u64::from(table_pages)),
            lengths: span(self.lengths, 4 * u64::from(sequences)),
            scratch: span(self.scratch, cache.scratch_bytes(sequences)),
        }
    }
}

/// Dereferences a pointer argument.
///
/// # Safety
/// It is null or valid.
unsafe fn dereference<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(what))
}

fn null(what: &str) -> Failure {
    Failure::Value(format!("{what} must not be null"))
}
