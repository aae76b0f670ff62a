//! One new token of each sequence: its queries and keys turned by its position, its keys and values appended, in one launch.

use cudarc::driver::CudaStream;

use super::{APPEND_THREADS, KvCache, overlapping, shape::fits};
use crate::{DeviceSpan, Error, driver::Launch};

/// The struct `Fresh` of `kv.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct FreshView {
    rows: u64,
    queries: u64,
    turns: u64,
    lengths: u64,
    table: u64,
    table_stride: u32,
    sequences: u32,
    group: u32,
    layer: u32,
}

/// One token of each sequence, as the product of queries, keys and values leaves it.
#[derive(Debug, Clone, Copy)]
pub struct Fresh<'a> {
    /// The layer.
    pub layer: u32,
    /// Sequences.
    pub sequences: u32,
    /// Heads that ask for each head of keys and values.
    pub group: u32,
    /// bf16: of each sequence all heads of queries, then of keys, then of values.
    pub rows: DeviceSpan<'a>,
    /// The queries, turned: of each sequence all heads, as [`Attend`](super::Attend) takes them.
    pub queries: DeviceSpan<'a>,
    /// Rotary embedding: for each position, and half the values of a head, the cosine and the sine, in single precision.
    pub turns: DeviceSpan<'a>,
    /// Pages, 32 bits each, as many to a sequence as there is room for.
    pub table: DeviceSpan<'a>,
    /// Tokens of each sequence, 32 bits, the new one included.
    pub lengths: DeviceSpan<'a>,
}

impl KvCache<'_> {
    /// Turns and appends, when the stream gets there.
    ///
    /// # Errors
    /// [`Error::Kv`], [`Error::Shape`], or what the driver says.
    ///
    /// # Safety
    /// Positions have their turns and, in the table, their pages, which are the cache's; no page is another sequence's too.
    pub unsafe fn append_turned(&self, on: &CudaStream, fresh: &Fresh<'_>) -> Result<(), Error> {
        let Fresh { layer, sequences, group, rows, queries, turns, table, lengths } = *fresh;
        if layer >= self.shape.layers || sequences == 0 || !(1..=1024).contains(&group) {
            let layers = self.shape.layers;
            return Err(Error::Kv(format!(
                "{sequences} sequences, groups of {group}, layer {layer} of {layers}"
            )));
        }
        let heads = u64::from(self.shape.heads) * u64::from(group + 2);
        let bytes = 2 * u64::from(sequences) * u64::from(self.shape.head_values);
        fits(rows, bytes * heads, 16, "all heads of queries, keys and values of each sequence, in bf16")?;
        fits(queries, bytes * u64::from(self.shape.heads * group), 16, "all heads that ask, in bf16")?;
        fits(
            turns,
            4 * u64::from(self.shape.head_values),
            16,
            "a cosine and a sine for each pair of values",
        )?;
        fits(lengths, 4 * u64::from(sequences), 4, "4 bytes for each sequence")?;
        fits(table, 4 * u64::from(sequences), 4, "4 bytes for each page, as many to each sequence")?;
        let arguments = FreshView {
            rows: rows.address(),
            queries: queries.address(),
            turns: turns.address(),
            lengths: lengths.address(),
            table: table.address(),
            table_stride: (table.bytes() / 4 / u64::from(sequences)) as u32,
            sequences,
            group,
            layer,
        };
        let lanes = u64::from(sequences) * heads * u64::from(self.shape.parts()) * 4;
        let launch = Launch::row(lanes.div_ceil(APPEND_THREADS), APPEND_THREADS as u32);
        // SAFETY: the arguments of `kv_append_turned`, checked above, and the caller's promise.
        let started =
            unsafe { overlapping(launch).start(on, &self.kernels.append_turned, &(self.view(), arguments)) };
        self.gpu.check("append turned tokens", started)
    }
}
