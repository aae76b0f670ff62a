//! One new token of each sequence in one launch: applies RoPE to its queries and keys, appends its
//! keys and values, and attends to all tokens so far.

use cudarc::driver::CudaStream;

use super::{Attend, KvCache, shape::fits};
use crate::{DeviceSpan, Error};

/// One token of each sequence, as the QKV projection writes it.
#[derive(Debug, Clone, Copy)]
pub struct Fresh<'a> {
    /// bf16: of each sequence the heads of queries, then of keys, then of values.
    pub rows: DeviceSpan<'a>,
    /// RoPE factors, fp32: cosine and sine for each position and half the head dimension.
    pub rope: DeviceSpan<'a>,
}

impl KvCache<'_> {
    /// Enqueues RoPE, append and attention. Arguments are those of [`KvCache::attend`], with one
    /// token per sequence; `queries` is ignored.
    ///
    /// # Errors
    /// [`Error::Kv`], [`Error::Shape`], or an error of the compiler or the driver.
    ///
    /// # Safety
    /// As for [`KvCache::attend`]; every position has RoPE factors; no page belongs to two
    /// sequences. Lengths, page table and all older tokens are complete before the preceding kernel
    /// begins, since they are read while it ends.
    pub unsafe fn attend_fresh(
        &self,
        on: &CudaStream,
        asked: &Attend<'_>,
        fresh: &Fresh<'_>,
    ) -> Result<(), Error> {
        if asked.tokens != 1 {
            return Err(Error::Kv(format!("{} fresh tokens of a sequence: one is known", asked.tokens)));
        }
        let heads = u64::from(self.shape.heads) * u64::from(asked.group + 2);
        let row = 2 * u64::from(self.shape.head_values);
        let need = "all heads of queries, keys and values of each sequence, in bf16";
        fits(fresh.rows, u64::from(asked.sequences) * heads * row, 16, need)?;
        fits(fresh.rope, 2 * row, 16, "a cosine and a sine for each pair of values")?;
        let mut arguments = self.arguments(asked)?;
        (arguments.rows, arguments.rope) = (fresh.rows.address(), fresh.rope.address());
        // SAFETY: the arguments of `attention`, checked above, and the caller's promise.
        unsafe { self.start_attention(on, asked, arguments, true) }
    }
}
