//! Codecs that use the sign, exponent and mantissa of floats (`docs/reference/format.md`, "fp16,
//! fp32 and bf16").
//!
//! Mantissas of real data look like noise, but the values of an entry share a few exponents, and
//! zeros cost one bit of a bitmap. All three codecs have the layout in `sparse`; bf16 has two more,
//! of 96 bytes, for entries without zeros.

mod bf16;
mod sparse;
#[cfg(test)]
mod tests;

use buddy_core::{Entry, Layout};
use serde::{Deserialize, Serialize};

pub use bf16::Bf16;
use sparse::Sparse;

use crate::{EntryCodec, Error, Stream, codec::require_layout_a};

/// Floats with `E` exponent and `M` mantissa bits, in the sparse layout only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Float<const E: u32, const M: u32>;

/// Half precision: 64 values per entry.
pub type Fp16 = Float<5, 10>;
/// Single precision: 32 values per entry.
pub type Fp32 = Float<8, 23>;

impl<const E: u32, const M: u32> EntryCodec for Float<E, M> {
    fn max_bits(&self) -> u32 {
        Sparse::<E, M>::MAX_BITS
    }

    #[inline(always)]
    fn size_bits(&self, entry: &Entry) -> u32 {
        Sparse::<E, M>::scan(entry).bits()
    }

    #[inline(always)]
    fn encode(&self, entry: &Entry, stream: &mut Stream) {
        Sparse::<E, M>::scan(entry).write(entry, stream);
    }

    #[inline(always)]
    fn decode(&self, stream: &[u8], layout: Layout) -> Result<Entry, Error> {
        require_layout_a(layout)?;
        Sparse::<E, M>::read(stream)
    }
}
