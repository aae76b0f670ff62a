//! Bit-planes over lanes of 8, 16, 32 or 64 bits: BPC's transform in a layout for GPUs
//! (`docs/reference/format.md`, "planes").
//!
//! Differences are taken modulo 2^W, so there is no sign plane. A mask of the non-zero planes comes
//! first, then the base, then those planes. The mask alone locates every plane, so planes can be
//! read in parallel.

use buddy_core::{Entry, Layout};
use serde::{Deserialize, Serialize};

use crate::{
    EntryCodec, Error, Stream,
    bits::{LsbReader, LsbWriter},
    codec::require_layout_a,
    lanes::{self, MAX_LANES},
    simd::transpose,
};

/// Bit-planes over lanes of `W` bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planes<const W: usize>;

impl<const W: usize> EntryCodec for Planes<W> {
    fn max_bits(&self) -> u32 {
        size::<W>(lanes::mask::<W>())
    }

    #[inline(always)]
    fn size_bits(&self, entry: &Entry) -> u32 {
        let xored = xored::<W>(&lanes::split::<W>(entry));
        size::<W>(stored(&xored))
    }

    #[inline(always)]
    fn encode(&self, entry: &Entry, stream: &mut Stream) {
        let words = lanes::split::<W>(entry);
        let xored = xored::<W>(&words);
        let mask = stored(&xored);
        let planes = lanes_to_planes::<W>(&xored);
        let mut writer = LsbWriter::new(stream);
        writer.put(mask, W as u32);
        writer.put(words[0], W as u32);
        let bits = lanes::count::<W>() as u32 - 1;
        let mut left = mask;
        while left != 0 {
            let j = left.ilog2();
            left ^= 1 << j;
            writer.put(planes[j as usize] as u64, bits.min(64));
            if bits > 64 {
                writer.put((planes[j as usize] >> 64) as u64, bits - 64);
            }
        }
        writer.finish();
    }

    #[inline(always)]
    fn decode(&self, stream: &[u8], layout: Layout) -> Result<Entry, Error> {
        require_layout_a(layout)?;
        let mut reader = LsbReader::new(stream);
        let mask = reader.take(W as u32)?;
        let base = reader.take(W as u32)?;
        reader.need(size::<W>(mask) as usize)?;
        let mut planes = [0; MAX_LANES];
        let mut above = 0;
        for j in (0..W).rev() {
            if mask >> j & 1 == 1 {
                let bits = lanes::count::<W>() as u32 - 1;
                let low = reader.take(bits.min(64))?;
                let high = if bits > 64 { reader.take(bits - 64)? } else { 0 };
                above ^= u128::from(high) << 64 | u128::from(low);
            }
            planes[j] = above;
        }
        Ok(lanes::join::<W>(&lanes::sums::<W>(base, &planes_to_lanes::<W>(&planes))))
    }
}

/// Returns the stream bits with the planes of `mask`.
#[inline(always)]
fn size<const W: usize>(mask: u64) -> u32 {
    2 * W as u32 + (lanes::count::<W>() as u32 - 1) * mask.count_ones()
}

/// Returns each difference XORed with itself shifted by one: bit j is its bit in `DBX[j]`.
#[inline(always)]
fn xored<const W: usize>(words: &[u64; MAX_LANES]) -> [u64; MAX_LANES] {
    lanes::deltas::<W>(words).map(|delta| delta ^ delta >> 1)
}

/// Returns the mask of non-zero planes.
#[inline(always)]
fn stored(xored: &[u64; MAX_LANES]) -> u64 {
    xored.iter().fold(0, |mask, word| mask | word)
}

/// Transposes words to planes: plane j holds bit j of every word. Works on 32x32-bit blocks: narrow
/// words are packed side by side, wide ones are split into halves.
#[inline(always)]
fn lanes_to_planes<const W: usize>(words: &[u64; MAX_LANES]) -> [u128; MAX_LANES] {
    let mut square = [0; 32];
    for (i, &word) in words[..lanes::count::<W>()].iter().enumerate() {
        if W == 64 {
            (square[i], square[16 + i]) = (word as u32, (word >> 32) as u32);
        } else {
            square[i % 32] |= (word as u32) << (W * (i / 32) % 32);
        }
    }
    let square = transpose(&square);
    let mut planes = [0; MAX_LANES];
    for (j, plane) in planes[..W].iter_mut().enumerate() {
        *plane = if W == 64 {
            u128::from(square[j % 32] >> (16 * (j / 32)) & 0xffff)
        } else {
            (0..32 / W).fold(0, |plane, part| plane | u128::from(square[j + W * part]) << (32 * part))
        };
    }
    planes
}

/// Transposes planes back to words.
#[inline(always)]
fn planes_to_lanes<const W: usize>(planes: &[u128; MAX_LANES]) -> [u64; MAX_LANES] {
    let mut square = [0; 32];
    for (j, &plane) in planes[..W].iter().enumerate() {
        if W == 64 {
            square[j % 32] |= (plane as u32 & 0xffff) << (16 * (j / 32));
        } else {
            for part in 0..32 / W {
                square[j + W * part] = (plane >> (32 * part)) as u32;
            }
        }
    }
    let square = transpose(&square);
    let mut words = [0; MAX_LANES];
    for (i, word) in words[..lanes::count::<W>()].iter_mut().enumerate() {
        *word = if W == 64 {
            u64::from(square[i]) | u64::from(square[16 + i]) << 32
        } else {
            u64::from(square[i % 32] >> (W * (i / 32) % 32)) & lanes::mask::<W>()
        };
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn planes_hold_the_bits_of_words() {
        transposes_lanes::<8>();
        transposes_lanes::<16>();
        transposes_lanes::<32>();
        transposes_lanes::<64>();
    }

    fn transposes_lanes<const W: usize>() {
        let count = lanes::count::<W>();
        let words: [u64; MAX_LANES] = std::array::from_fn(|i| {
            if i < count {
                (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) & lanes::mask::<W>()
            } else {
                0
            }
        });
        let planes = lanes_to_planes::<W>(&words);
        for (i, j) in (0..count).flat_map(|i| (0..W).map(move |j| (i, j))) {
            assert_eq!(words[i] >> j & 1, (planes[j] >> i & 1) as u64, "word {i}, bit {j}");
        }
        assert_eq!(planes_to_lanes::<W>(&planes), words);
    }

    /// Differences of 3 are `…0011`, XORed `…0010`: only plane 1 is stored, 15 ones.
    #[test]
    fn a_ramp_stores_one_plane() {
        let entry = lanes::join::<64>(&std::array::from_fn(|i| 10 + 3 * i as u64));
        let mut stream = Stream::default();
        Planes::<64>.encode(&entry, &mut stream);
        let mut expected = [0; 18];
        (expected[0], expected[8]) = (0b10, 10);
        expected[16..].copy_from_slice(&0x7fff_u16.to_le_bytes());
        assert_eq!((stream.bits(), stream.bytes()), (143, &expected[..]));
    }

    #[test]
    fn every_width_satisfies_the_contract() {
        let samples = testing::samples();
        testing::contract(&Planes::<8>, &samples);
        testing::contract(&Planes::<16>, &samples);
        testing::contract(&Planes::<32>, &samples);
        testing::contract(&Planes::<64>, &samples);
    }
}
