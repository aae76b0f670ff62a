//! Codecs that know where sign, exponent and mantissa of a float lie (`docs/reference/format.md`, "fp16, fp32 and bf16").
//!
//! Mantissas of real data look like noise, exponents do not: the values of an entry share a few, and zeros cost
//! nothing once a bitmap says where they are. `sparse` is the layout that all three codecs have; bf16 has two
//! more for entries without zeros, which fill 96 bytes.

mod bf16;
mod sparse;
#[cfg(test)]
mod tests;

use buddy_core::{Entry, Layout};
use serde::{Deserialize, Serialize};

pub use bf16::Bf16;
use sparse::Sparse;

use crate::{EntryCodec, Error, Stream, codec::only_a};

/// Floats with `E` bits of exponent and `M` of mantissa, which have the sparse layout and no other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Float<const E: u32, const M: u32>;

/// Half precision: 64 values in an entry.
pub type Fp16 = Float<5, 10>;
/// Single precision: 32 values in an entry.
pub type Fp32 = Float<8, 23>;

impl<const E: u32, const M: u32> EntryCodec for Float<E, M> {
    fn max_bits(&self) -> u32 {
        Sparse::<E, M>::MAX_BITS
    }

    #[inline(always)]
    fn size_bits(&self, entry: &Entry) -> u32 {
        Sparse::<E, M>::of(entry).bits()
    }

    #[inline(always)]
    fn encode(&self, entry: &Entry, stream: &mut Stream) {
        Sparse::<E, M>::of(entry).write(entry, stream);
    }

    #[inline(always)]
    fn decode(&self, stream: &[u8], layout: Layout) -> Result<Entry, Error> {
        only_a(layout)?;
        Sparse::<E, M>::read(stream)
    }
}
