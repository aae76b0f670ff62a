//! Decode attention over a KV cache: queries of the last tokens of each sequence.

use std::{collections::HashMap, sync::PoisonError};

use cudarc::driver::{CudaFunction, CudaStream, sys::CUfunction_attribute};

use super::{
    AttentionPlan, KvCache, KvShape, KvView, overlapping,
    plan::MOST_COLUMNS,
    shape::{ALIGN, fits},
};
use crate::{DeviceSpan, Error};

/// Shared-memory carve-out: the largest share, in percent.
const ALL_SHARED: i32 = 100;

/// Loaded kernels by head dimension, columns, fresh token, and clusters.
pub(crate) type Attentions = HashMap<(u32, u32, bool, bool), CudaFunction>;

/// The kernel's argument: the struct `Attention` of `attention_plan.cuh`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct AttentionArguments {
    /// The cache.
    pub cache: KvView,
    queries: u64,
    out: u64,
    table: u64,
    lengths: u64,
    partials: u64,
    counters: u64,
    pub(super) rows: u64,
    pub(super) rope: u64,
    table_stride: u32,
    sequences: u32,
    tokens: u32,
    group: u32,
    layer: u32,
    scale: f32,
    split: u32,
    reserved: u32,
}

/// Arguments of attention in one layer.
#[derive(Debug, Clone, Copy)]
pub struct Attend<'a> {
    /// The layer.
    pub layer: u32,
    /// Number of sequences.
    pub sequences: u32,
    /// Query tokens of each sequence, its last ones, with a causal mask.
    pub tokens: u32,
    /// Query heads per KV head (GQA). `group * tokens` is at most 16.
    pub group: u32,
    /// Scale of the scores, usually one over the square root of the head dimension.
    pub scale: f32,
    /// Queries, bf16: `[sequence][token][head]`, the query heads of a KV head together.
    pub queries: DeviceSpan<'a>,
    /// The output, in the same order.
    pub out: DeviceSpan<'a>,
    /// Page table, 32 bits per page; an equal number of pages for each sequence.
    pub table: DeviceSpan<'a>,
    /// Tokens of each sequence, query tokens included, 32 bits each.
    pub lengths: DeviceSpan<'a>,
    /// Scratch memory of [`KvCache::scratch_bytes`]. Zero before the first use; every launch leaves
    /// it reusable, for any number of sequences that it has room for.
    pub scratch: DeviceSpan<'a>,
}

impl Attend<'_> {
    /// Returns the columns of the kernel.
    pub fn columns(&self) -> u32 {
        columns_of(self.tokens * self.group)
    }
}

/// Returns the columns of the kernel for a number of query heads times tokens.
fn columns_of(queries: u32) -> u32 {
    if queries <= 8 { 8 } else { MOST_COLUMNS }
}

impl KvShape {
    /// Returns the bytes of scratch memory for a number of sequences and SMs: two partials per CTA,
    /// and a counter for each head of a sequence.
    pub fn scratch_bytes(self, sequences: u32, multiprocessors: u32) -> u64 {
        let counters = (4 * u64::from(sequences) * u64::from(self.heads)).next_multiple_of(ALIGN);
        self.partial_bytes(multiprocessors) + counters
    }

    /// Returns the bytes of all partials, each with a float per value and column and two per column.
    /// The counters follow them, so that no call writes partials over the counters of another with
    /// more sequences.
    fn partial_bytes(self, multiprocessors: u32) -> u64 {
        2 * u64::from(multiprocessors) * 4 * (u64::from(self.head_values) + 2) * u64::from(MOST_COLUMNS)
    }
}

impl KvCache<'_> {
    /// Returns the bytes of scratch memory for a number of sequences.
    pub fn scratch_bytes(&self, sequences: u32) -> u64 {
        self.shape.scratch_bytes(sequences, self.gpu.multiprocessors())
    }

    /// Enqueues attention of the last tokens of each sequence over the cache.
    ///
    /// # Errors
    /// [`Error::Kv`], [`Error::Shape`], as for [`Gpu::attends`](crate::Gpu::attends), or an error of
    /// the compiler or the driver.
    ///
    /// # Safety
    /// Lengths count tokens that were appended, and the page table holds pages of the cache for all
    /// of them.
    pub unsafe fn attend(&self, on: &CudaStream, asked: &Attend<'_>) -> Result<(), Error> {
        let arguments = self.arguments(asked)?;
        // SAFETY: the arguments of `attention`, checked above, and the caller's promise.
        unsafe { self.start_attention(on, asked, arguments, false) }
    }

    /// # Safety
    /// The arguments match what was asked.
    pub(super) unsafe fn start_attention(
        &self,
        on: &CudaStream,
        asked: &Attend<'_>,
        arguments: AttentionArguments,
        fresh: bool,
    ) -> Result<(), Error> {
        let plan = self.attention_plan(asked);
        let (kernel, launch) =
            (self.attention(asked.columns(), plan, fresh)?, plan.launch(asked.columns(), true));
        // SAFETY: the caller's promise.
        let started = unsafe { overlapping(launch).start(on, &kernel, &(arguments,)) };
        self.gpu.check("start attention", started)
    }

    /// Returns the partition of the work among CTAs. It follows from the size of the page table,
    /// since lengths are known on the device only.
    pub fn attention_plan(&self, asked: &Attend<'_>) -> AttentionPlan {
        let pages = asked.table.bytes() / 4 / u64::from(asked.sequences.max(1));
        let tokens = pages * u64::from(self.shape.page_tokens);
        let items = asked.sequences.saturating_mul(self.shape.heads).max(1);
        AttentionPlan::of(items, tokens, asked.columns(), self.gpu.multiprocessors())
    }

    /// Returns the kernel's argument, for a kernel that does the same on plain memory and is
    /// measured for comparison.
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
            partials: scratch.address(),
            counters: scratch.address() + self.shape.partial_bytes(self.gpu.multiprocessors()),
            rows: 0,
            rope: 0,
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

    /// Compiles, or loads from the cache, every kernel that [`Self::attend`] may start for one query
    /// token of `group` heads, so that none is loaded while a graph is captured.
    ///
    /// # Errors
    /// An error of the compiler or the driver.
    pub fn load_attention(&self, group: u32) -> Result<(), Error> {
        let columns = columns_of(group);
        let kinds = AttentionPlan::ALL_KINDS.into_iter();
        kinds
            .filter(|&(values, of_kind, _)| (values, of_kind) == (self.shape.head_values, columns))
            .try_for_each(|(_, _, plan)| self.attention(columns, plan, false).map(drop))
    }

    fn attention(&self, columns: u32, plan: AttentionPlan, fresh: bool) -> Result<CudaFunction, Error> {
        let key = (self.shape.head_values, columns, fresh, plan.has_clusters());
        let mut known = self.kernels.attentions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = known.get(&key) {
            return Ok(kernel.clone());
        }
        self.gpu.attends()?;
        let module = self.gpu.module(&plan.source("Packed", key.0, key.1, fresh))?;
        let kernel = self.gpu.check("find the kernels", module.load_function("attention"))?;
        // Two CTAs of a cluster fit an SM only with all its shared memory. A size that differs from
        // the neighbouring linear layers' would also drain the GPU between kernels.
        let share = CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
        self.gpu.check("choose shared memory", kernel.set_attribute(share, ALL_SHARED))?;
        known.insert(key, kernel.clone());
        Ok(kernel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls with few and with many sequences share scratch memory: the counters have one place, and
    /// those of all sequences fit behind the partials.
    #[test]
    fn counters_do_not_move_with_the_number_of_sequences() {
        for head_values in [64, 128] {
            let shape = KvShape { layers: 1, pages: 1, heads: 8, head_values, page_tokens: 16 };
            let partials = shape.partial_bytes(132);
            assert!(partials.is_multiple_of(ALIGN));
            assert_eq!(shape.scratch_bytes(0, 132), partials);
            for sequences in [1, 3, 64, 1000] {
                let counters = shape.scratch_bytes(sequences, 132) - partials;
                assert!(counters >= 4 * 8 * u64::from(sequences) && counters.is_multiple_of(ALIGN));
            }
        }
    }
}
