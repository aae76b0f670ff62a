//! Bit planes over lanes of 8, 16, 32 or 64 bits: BPC's transform, laid out for a GPU (`docs/format.md`,
//! "planes").
//!
//! Differences are taken modulo 2^W, so there is no plane of signs above them: the words add up without it. A
//! mask of the planes that are not zero comes first, then the base, then those planes: where a plane begins
//! follows from the mask alone, and no code has to be read before the next can be.

use buddy_core::{Entry, Layout};
use serde::{Deserialize, Serialize};

use crate::{
    EntryCodec, Error, Stream,
    bits::LsbReader,
    lanes::{self, MOST},
};

/// Bit planes over lanes of `W` bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planes<const W: usize>;

impl<const W: usize> EntryCodec for Planes<W> {
    fn max_bits(&self) -> u32 {
        size::<W>(lanes::mask::<W>())
    }

    #[inline(always)]
    fn size_bits(&self, entry: &Entry) -> u32 {
        let crossed = crossed::<W>(&lanes::split::<W>(entry));
        size::<W>(stored(&crossed))
    }

    #[inline(always)]
    fn encode(&self, entry: &Entry, stream: &mut Stream) {
        let words = lanes::split::<W>(entry);
        let crossed = crossed::<W>(&words);
        let mask = stored(&crossed);
        let planes = turn::<W>(&crossed);
        stream.clear();
        stream.put_lsb(mask, W as u32);
        stream.put_lsb(words[0], W as u32);
        for j in (0..W).rev().filter(|j| mask >> j & 1 == 1) {
            let bits = lanes::count::<W>() as u32 - 1;
            stream.put_lsb(planes[j] as u64, bits.min(64));
            if bits > 64 {
                stream.put_lsb((planes[j] >> 64) as u64, bits - 64);
            }
        }
    }

    #[inline(always)]
    fn decode(&self, stream: &[u8], layout: Layout) -> Result<Entry, Error> {
        if layout != Layout::A {
            return Err(Error::Layout(layout));
        }
        let mut reader = LsbReader::new(stream);
        let mask = reader.take(W as u32)?;
        let base = reader.take(W as u32)?;
        reader.need(size::<W>(mask) as usize)?;
        let mut planes = [0; MOST];
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
        Ok(lanes::join::<W>(&lanes::sums::<W>(base, &turn_back::<W>(&planes))))
    }
}

/// Bits of a stream with the planes of `mask`.
#[inline(always)]
fn size<const W: usize>(mask: u64) -> u32 {
    2 * W as u32 + (lanes::count::<W>() as u32 - 1) * mask.count_ones()
}

/// Each difference XORed with itself one bit higher: bit j of it is its bit in `DBX[j]`.
#[inline(always)]
fn crossed<const W: usize>(words: &[u64; MOST]) -> [u64; MOST] {
    lanes::deltas::<W>(words).map(|delta| delta ^ delta >> 1)
}

/// The planes that are not zero.
#[inline(always)]
fn stored(crossed: &[u64; MOST]) -> u64 {
    crossed.iter().fold(0, |mask, word| mask | word)
}

/// Plane j holds bit j of every word. Words go in eights and planes in eights: an 8 by 8 block of bits fits a
/// `u64`.
#[inline(always)]
fn turn<const W: usize>(words: &[u64; MOST]) -> [u128; MOST] {
    let mut planes = [0; MOST];
    for group in 0..lanes::count::<W>() / 8 {
        for byte in 0..W / 8 {
            let block = (0..8)
                .fold(0, |block, row| block | (words[8 * group + row] >> (8 * byte) & 0xff) << (8 * row));
            let block = turn_block(block);
            for bit in 0..8 {
                planes[8 * byte + bit] |= u128::from(block >> (8 * bit) & 0xff) << (8 * group);
            }
        }
    }
    planes
}

/// The words whose planes these are.
#[inline(always)]
fn turn_back<const W: usize>(planes: &[u128; MOST]) -> [u64; MOST] {
    let mut words = [0; MOST];
    for group in 0..lanes::count::<W>() / 8 {
        for byte in 0..W / 8 {
            let row = |bit: usize| (planes[8 * byte + bit] >> (8 * group)) as u64 & 0xff;
            let block = turn_block((0..8).fold(0, |block, bit| block | row(bit) << (8 * bit)));
            for word in 0..8 {
                words[8 * group + word] |= (block >> (8 * word) & 0xff) << (8 * byte);
            }
        }
    }
    words
}

/// Transposes an 8 by 8 block of bits, a row in each byte: three rounds of swapped off-diagonal squares.
#[inline(always)]
fn turn_block(mut block: u64) -> u64 {
    for (shift, mask) in
        [(7, 0x00aa_00aa_00aa_00aa), (14, 0x0000_cccc_0000_cccc), (28, 0x0000_0000_f0f0_f0f0)]
    {
        let swap = (block ^ block >> shift) & mask;
        block ^= swap ^ swap << shift;
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn a_block_turns_on_its_diagonal() {
        let block = 0x8040_2010_0804_0201_u64;
        assert_eq!(turn_block(block), block);
        assert_eq!(turn_block(0xff), 0x0101_0101_0101_0101);
        assert_eq!(turn_block(turn_block(0x0123_4567_89ab_cdef)), 0x0123_4567_89ab_cdef);
    }

    #[test]
    fn planes_hold_the_bits_of_words() {
        let words: [u64; MOST] = std::array::from_fn(|i| (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let planes = turn::<64>(&words);
        for (i, j) in (0..16).flat_map(|i| (0..64).map(move |j| (i, j))) {
            assert_eq!(words[i] >> j & 1, planes[j] as u64 >> i & 1, "word {i}, bit {j}");
        }
        assert_eq!(turn_back::<64>(&planes)[..16], words[..16]);
    }

    /// Differences of 3 are `…0011`, XORed `…0010`: of all planes only plane 1 is stored, 15 ones.
    #[test]
    fn a_ramp_stores_one_plane() {
        let entry = lanes::join::<64>(&std::array::from_fn(|i| 10 + 3 * i as u64));
        let mut stream = Stream::default();
        Planes::<64>.encode(&entry, &mut stream);
        let mut expected = vec![0; 18];
        (expected[0], expected[8]) = (0b10, 10);
        expected[16..].copy_from_slice(&0x7fff_u16.to_le_bytes());
        assert_eq!((stream.bits(), stream.bytes()), (143, &expected[..]));
    }

    #[test]
    fn every_width_keeps_the_contract() {
        let samples = testing::samples();
        testing::contract(&Planes::<8>, &samples);
        testing::contract(&Planes::<16>, &samples);
        testing::contract(&Planes::<32>, &samples);
        testing::contract(&Planes::<64>, &samples);
    }
}
