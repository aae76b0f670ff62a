//! One new token of each sequence, in one launch: its queries and keys are turned by its position,
//! its keys and values appended, and it attends to all tokens so far.

use cudarc::driver::CudaStream;

use super::{Attend, KvCache, shape::fits};
use crate::{DeviceSpan, Error};

/// One token of each sequence, as the product of queries, keys and values leaves it.
#[derive(Debug, Clone, Copy)]
pub struct Fresh<'a> {
    /// bf16: of each sequence all heads of queries, then of keys, then of values.
    pub rows: DeviceSpan<'a>,
    /// Rotary embedding: for each position, and half the values of a head, the cosine and the sine,
    /// in single precision.
    pub turns: DeviceSpan<'a>,
}

impl KvCache<'_> {
    /// Turns, appends and attends, when the stream gets there. What is asked is as for
    /// [`KvCache::attend`], of one token each; its queries are not looked at.
    ///
    /// # Errors
    /// [`Error::Kv`], [`Error::Shape`], or what compiler or driver say.
    ///
    /// # Safety
    /// As for [`KvCache::attend`]; positions have their turns; no page is another sequence's too.
    /// Lengths, table and all tokens but the fresh ones are there when the kernel before this one
    /// in the stream begins, since they are read while it ends.
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
        fits(fresh.turns, 2 * row, 16, "a cosine and a sine for each pair of values")?;
        let mut arguments = self.arguments(asked)?;
        (arguments.rows, arguments.turns) = (fresh.rows.address(), fresh.turns.address());
        // SAFETY: the arguments of `attention`, checked above, and the caller's promise.
        unsafe { self.start_attention(on, asked, arguments, true) }
    }
}
