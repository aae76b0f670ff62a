//! Decode attention over a cache: the last tokens of each sequence ask.

use std::{collections::HashMap, sync::PoisonError};

use cudarc::driver::{CudaFunction, CudaStream};

use super::{
    KvCache, KvShape, KvView, overlapping,
    shape::{ALIGN, fits},
};
use crate::{
    DeviceSpan, Error,
    driver::Launch,
    source::{ATTENTION_SHARED, Source, attention_teams},
};

/// Threads of a team, and of the warps that fetch.
const TEAM_THREADS: u32 = 2 * 32;
const FETCHING_THREADS: u32 = 2 * 32;
/// Tokens of a tile; tiles that a block has at least, if blocks are few; and tiles of a block from which on all blocks attend. On an H200 1024
/// tokens of 8 heads take 13.8 us with 132 blocks and 11.8 with 32.
const TILE_TOKENS: u64 = 32;
const TILES_OF_BLOCK: u64 = 8;
const TILES_OF_LONG: u64 = 64;
/// Columns, heads times tokens that ask, that the widest kernel takes.
const MOST_COLUMNS: u32 = 16;

/// The kernels by values of a head and columns, and whether tokens are fresh.
pub(crate) type Attentions = HashMap<(u32, u32, bool), CudaFunction>;

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
    /// bf16: of each sequence its tokens, of each all heads that ask, those of one head of keys and values together.
    pub queries: DeviceSpan<'a>,
    /// The result, in the same order.
    pub out: DeviceSpan<'a>,
    /// Pages, 32 bits each, as many to a sequence as there is room for.
    pub table: DeviceSpan<'a>,
    /// Tokens of each sequence, the ones that ask included: 32 bits each.
    pub lengths: DeviceSpan<'a>,
    /// Room to work in, of [`KvCache::scratch_bytes`]. Zeros before the first use; it is left so that it can be used again.
    pub scratch: DeviceSpan<'a>,
}

impl Attend<'_> {
    /// Columns that the kernel is made for.
    pub fn columns(&self) -> u32 {
        if self.tokens * self.group <= 8 { 8 } else { MOST_COLUMNS }
    }
}

/// The grid of attention. Only compressed memory has metadata to fetch.
pub fn attention_launch(blocks: u32, columns: u32, metadata: bool) -> Launch {
    let fetching = if metadata { FETCHING_THREADS } else { FETCHING_THREADS / 2 };
    let threads = attention_teams(columns) * TEAM_THREADS + fetching;
    Launch::new((blocks, 1), threads, ATTENTION_SHARED)
}

/// Blocks for so many heads of so many tiles each, at most `most`.
fn blocks_of(items: u32, tiles: u64, most: u32) -> u32 {
    if items <= most && tiles * u64::from(items) <= TILES_OF_LONG * u64::from(most) {
        return items * (tiles / TILES_OF_BLOCK).clamp(1, u64::from(most / items)) as u32;
    }
    let each = items.div_ceil(most);
    let more = tiles * u64::from(each) - tiles * u64::from(items) / u64::from(most);
    if items > most && more <= TILES_OF_BLOCK { items.div_ceil(each) } else { most }
}

impl KvShape {
    /// Bytes that attention of so many sequences works in on a GPU of so many multiprocessors: a count for each head of a
    /// sequence, and of each block two parts of a head: a float for each value and column, and two for each column.
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

    /// Attention of the last tokens of each sequence over all that is in the cache, when the stream gets there.
    ///
    /// # Errors
    /// [`Error::Kv`], [`Error::Shape`], or what compiler or driver say.
    ///
    /// # Safety
    /// Lengths are those of tokens that were appended, and the pages that hold them are pages of the cache, with room in the
    /// table for as many.
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
        let kernel = self.attention(asked, fresh)?;
        let launch = attention_launch(self.attention_blocks(asked), asked.columns(), true);
        // SAFETY: the caller's promise.
        let started = unsafe { overlapping(launch).start(on, &kernel, &(arguments,)) };
        self.gpu.check("start attention", started)
    }

    /// Blocks that attend: a block for each multiprocessor, and for short contexts fewer, each with the same share of one head or
    /// with as many whole heads: what several blocks find of a head must be joined, which takes longer than to attend to some
    /// tokens more.
    pub fn attention_blocks(&self, asked: &Attend<'_>) -> u32 {
        let pages = asked.table.bytes() / 4 / u64::from(asked.sequences.max(1));
        let tiles = pages * u64::from(self.shape.page_tokens) / TILE_TOKENS;
        let items = asked.sequences.saturating_mul(self.shape.heads).max(1);
        blocks_of(items, tiles, self.gpu.multiprocessors())
    }

    /// What the kernel takes, for one that works otherwise on the same: the plain twin that is measured beside it.
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
        })
    }

    fn attention(&self, asked: &Attend<'_>, fresh: bool) -> Result<CudaFunction, Error> {
        let key = (self.shape.head_values, asked.columns(), fresh);
        let mut known = self.kernels.attentions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = known.get(&key) {
            return Ok(kernel.clone());
        }
        let module = self.gpu.module(&Source::attention("Packed", key.0, key.1, fresh))?;
        let kernel = self.gpu.check("find the kernels", module.load_function("attention"))?;
        known.insert(key, kernel.clone());
        Ok(kernel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_contexts_have_blocks_with_whole_heads_and_long_ones_all_blocks() {
        // Sequences times 8 heads, and tiles of 1024 and of 32,768 tokens.
        assert_eq!(blocks_of(8, 32, 132), 32);
        assert_eq!(blocks_of(64, 32, 132), 128);
        assert_eq!(blocks_of(256, 32, 132), 128, "two heads to a block");
        assert_eq!(blocks_of(512, 32, 132), 128, "four");
        assert_eq!(blocks_of(160, 32, 132), 132, "two to half of the blocks and one to the others");
        assert_eq!(blocks_of(64, 1024, 132), 132);
        assert_eq!(blocks_of(256, 1024, 132), 132);
    }
}
