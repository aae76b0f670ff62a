//! Codecs that know where sign, exponent and mantissa of a float lie (`docs/format.md`, "fp16, fp32 and bf16").
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

use crate::{EntryCodec, Error, Stream};

/// Half precision (1 sign, 5 exponent, 10 mantissa bits).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fp16;

/// Single precision (1, 8, 23).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fp32;

/// Both are the sparse layout and no other.
macro_rules! sparse_only {
    ($codec:ty, $exponent:literal, $mantissa:literal) => {
        impl EntryCodec for $codec {
            fn max_bits(&self) -> u32 {
                Sparse::<$exponent, $mantissa>::MAX_BITS
            }

            #[inline(always)]
            fn size_bits(&self, entry: &Entry) -> u32 {
                Sparse::<$exponent, $mantissa>::of(entry).bits()
            }

            #[inline(always)]
            fn encode(&self, entry: &Entry, stream: &mut Stream) {
                Sparse::<$exponent, $mantissa>::of(entry).write(entry, stream);
            }

            #[inline(always)]
            fn decode(&self, stream: &[u8], layout: Layout) -> Result<Entry, Error> {
                match layout {
                    Layout::A => Sparse::<$exponent, $mantissa>::read(stream),
                    _ => Err(Error::Layout(layout)),
                }
            }
        }
    };
}

sparse_only!(Fp16, 5, 10);
sparse_only!(Fp32, 8, 23);
