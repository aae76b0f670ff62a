//! Decode attention over a cache: the last tokens of each sequence ask.

use std::{collections::HashMap, sync::PoisonError};

use cudarc::driver::{CudaFunction, CudaStream, sys::CUfunction_attribute};

use super::{
    AttentionPlan, KvCache, KvShape, KvView, overlapping,
    plan::MOST_COLUMNS,
    shape::{ALIGN, fits},
};
use crate::{DeviceSpan, Error};

/// Percent of a multiprocessor's memory that are shared memory, as much as can be, and not cache.
const ALL_SHARED: i32 = 100;

/// The kernels by values of a head and columns, whether tokens are fresh, and whether items are
/// clusters'.
pub(crate) type Attentions = HashMap<(u32, u32, bool, bool), CudaFunction>;

/// What the kernel takes: the struct `Attention` of `attention_plan.cuh`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct AttentionArguments {
    /// The cache.
    pub cache: KvView,
    queries: u64,
    out: u64,
    table: u64,
    lengths: u64,
    parts: u64,
    counts: u64,
    pub(super) rows: u64,
    pub(super) turns: u64,
    table_stride: u32,
    sequences: u32,
    tokens: u32,
    group: u32,
    layer: u32,
    scale: f32,
    split: u32,
    reserved: u32,
}

/// What is asked of a layer.
#[derive(Debug, Clone, Copy)]
pub struct Attend<'a> {
    /// The layer.
    pub layer: u32,
    /// Sequences.
    pub sequences: u32,
    /// Tokens of each sequence that ask: its last ones. Each sees those before it and itself.
    pub tokens: u32,
    /// Heads that ask for each head of keys and values. With tokens, at most 16 columns.
    pub group: u32,
    /// Scores are multiplied by it; usually one over the root of a head's values.
    pub scale: f32,
    /// bf16: of each sequence its tokens, of each all heads that ask, those of one head of keys and
    /// values together.
    pub queries: DeviceSpan<'a>,
    /// The result, in the same order.
    pub out: DeviceSpan<'a>,
    /// Pages, 32 bits each, as many to a sequence as there is room for.
    pub table: DeviceSpan<'a>,
    /// Tokens of each sequence, the ones that ask included: 32 bits each.
    pub lengths: DeviceSpan<'a>,
    /// Room to work in, of [`KvCache::scratch_bytes`]. Zeros before the first use; it is left so
    /// that it can be used again.
    pub scratch: DeviceSpan<'a>,
}

impl Attend<'_> {
    /// Columns that the kernel is made for.
    pub fn columns(&self) -> u32 {
        if self.tokens * self.group <= 8 { 8 } else { MOST_COLUMNS }
    }
}

impl KvShape {
    /// Bytes that attention of so many sequences works in on a GPU of so many multiprocessors: a
    /// count for each head of a sequence, and of each block two parts of a head: a float for each
    /// value and column, and two for each column.
    pub fn scratch_bytes(self, sequences: u32, multiprocessors: u32) -> u64 {
        let part = 4 * (u64::from(self.head_values) + 2) * u64::from(MOST_COLUMNS);
        self.counts_bytes(sequences) + 2 * u64::from(multiprocessors) * part
    }

    fn counts_bytes(self, sequences: u32) -> u64 {
        (4 * u64::from(sequences) * u64::from(self.heads)).next_multiple_of(ALIGN)
    }
}

impl KvCache<'_> {
    /// Bytes that attention of so many sequences works in.
    pub fn scratch_bytes(&self, sequences: u32) -> u64 {
        self.shape.scratch_bytes(sequences, self.gpu.multiprocessors())
    }

    /// Attention of the last tokens of each sequence over all that is in the cache, when the stream
    /// gets there.
    ///
    /// # Errors
    /// [`Error::Kv`], [`Error::Shape`], or what compiler or driver say.
    ///
    /// # Safety
    /// Lengths are those of tokens that were appended, and the pages that hold them are pages of
    /// the cache, with room in the table for as many.
    pub unsafe fn attend(&self, on: &CudaStream, asked: &Attend<'_>) -> Result<(), Error> {
        let arguments = self.arguments(asked)?;
        // SAFETY: the arguments of `attention`, checked above, and the caller's promise.
        unsafe { self.start_attention(on, asked, arguments, false) }
    }

    /// # Safety
    /// The arguments are those of what is asked.
    pub(super) unsafe fn start_attention(
        &self,
        on: &CudaStream,
        asked: &Attend<'_>,
        arguments: AttentionArguments,
        fresh: bool,
    ) -> Result<(), Error> {
        let plan = self.attention_plan(asked);
        let (kernel, launch) = (self.attention(asked, plan, fresh)?, plan.launch(asked.columns(), true));
        // SAFETY: the caller's promise.
        let started = unsafe { overlapping(launch).start(on, &kernel, &(arguments,)) };
        self.gpu.check("start attention", started)
    }

    /// How blocks share what is asked: by what has room in the table, since lengths are known on
    /// the device alone.
    pub fn attention_plan(&self, asked: &Attend<'_>) -> AttentionPlan {
        let pages = asked.table.bytes() / 4 / u64::from(asked.sequences.max(1));
        let tokens = pages * u64::from(self.shape.page_tokens);
        let items = asked.sequences.saturating_mul(self.shape.heads).max(1);
        AttentionPlan::of(items, tokens, asked.columns(), self.gpu.multiprocessors())
    }

    /// What the kernel takes, for one that works otherwise on the same: the plain twin that is
    /// measured beside it.
    ///
    /// # Errors
    /// [`Error::Kv`] or [`Error::Shape`].
    pub fn arguments(&self, asked: &Attend<'_>) -> Result<AttentionArguments, Error> {
        let Attend { layer, sequences, tokens, group, scale, queries, out, table, lengths, scratch } = *asked;
        let columns = tokens.checked_mul(group).filter(|columns| (1..=MOST_COLUMNS).contains(columns));
        if columns.is_none() {
            return Err(Error::Kv(format!(
                "{tokens} tokens of {group} heads ask for one head: 1 to {MOST_COLUMNS} columns are known"
            )));
        }
        if layer >= self.shape.layers || sequences == 0 {
            return Err(Error::Kv(format!("{sequences} sequences, layer {layer} of {}", self.shape.layers)));
        }
        let heads = u64::from(self.shape.heads * group) * u64::from(self.shape.head_values);
        let bytes = 2 * u64::from(sequences) * u64::from(tokens) * heads;
        fits(queries, bytes, 16, "all heads of each token that asks, in bf16")?;
        fits(out, bytes, 16, "all heads of each token that asks, in bf16")?;
        fits(lengths, 4 * u64::from(sequences), 4, "4 bytes for each sequence")?;
        fits(scratch, self.scratch_bytes(sequences), ALIGN, "the bytes that attention works in")?;
        fits(table, 4 * u64::from(sequences), 4, "4 bytes for each page, as many to each sequence")?;
        Ok(AttentionArguments {
            cache: self.view(),
            queries: queries.address(),
            out: out.address(),
            table: table.address(),
            lengths: lengths.address(),
            parts: scratch.address() + self.shape.counts_bytes(sequences),
            counts: scratch.address(),
            rows: 0,
            turns: 0,
            table_stride: (table.bytes() / 4 / u64::from(sequences)) as u32,
            sequences,
            tokens,
            group,
            layer,
            scale: scale * std::f32::consts::LOG2_E,
            split: self.attention_plan(asked).split(),
            reserved: 0,
        })
    }

    fn attention(&self, asked: &Attend<'_>, plan: AttentionPlan, fresh: bool) -> Result<CudaFunction, Error> {
        let key = (self.shape.head_values, asked.columns(), fresh, plan.has_clusters());
        let mut known = self.kernels.attentions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = known.get(&key) {
            return Ok(kernel.clone());
        }
        let module = self.gpu.module(&plan.source("Packed", key.0, key.1, fresh))?;
        let kernel = self.gpu.check("find the kernels", module.load_function("attention"))?;
        // Two blocks of a cluster have room only in all of it, and other sizes than those of the
        // products around would stop the GPU between.
        let share = CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
        self.gpu.check("choose shared memory", kernel.set_attribute(share, ALL_SHARED))?;
        known.insert(key, kernel.clone());
        Ok(kernel)
    }
}
