//! Doubles of a smooth field: differences of neighbours, at the width of the largest
//! (`docs/reference/format.md`, "delta64").
//!
//! Signed differences are zigzag-coded, so that small ones of either sign have leading zeros. Bits
//! unused by all differences, at both ends, are omitted. Each of the 15 fields can be read
//! independently. Compared with bit-planes over 64-bit lanes it saves the plane mask.

use buddy_core::{Entry, Layout};
use serde::{Deserialize, Serialize};

use crate::{
    EntryCodec, Error, Stream,
    bits::{LsbReader, LsbWriter},
    codec::require_layout_a,
    lanes::{self, MAX_LANES},
};

/// Differences per entry.
const DELTAS: usize = 15;

/// Zigzag-coded differences of 64-bit words, bit-packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delta64;

impl EntryCodec for Delta64 {
    fn max_bits(&self) -> u32 {
        80 + 64 * DELTAS as u32
    }

    #[inline(always)]
    fn size_bits(&self, entry: &Entry) -> u32 {
        let used = folded(&lanes::split::<64>(entry)).iter().fold(0, |used, word| used | word);
        80 + DELTAS as u32 * width(used)
    }

    #[inline(always)]
    fn encode(&self, entry: &Entry, stream: &mut Stream) {
        let words = lanes::split::<64>(entry);
        let folded = folded(&words);
        let used = folded.iter().fold(0, |used, word| used | word);
        let shift = if used == 0 { 0 } else { used.trailing_zeros() };
        let mut writer = LsbWriter::new(stream);
        writer.put(words[0], 64);
        writer.put(u64::from(width(used)), 8);
        writer.put(u64::from(shift), 8);
        for word in &folded[..DELTAS] {
            writer.put(word >> shift, width(used));
        }
        writer.finish();
    }

    #[inline(always)]
    fn decode(&self, stream: &[u8], layout: Layout) -> Result<Entry, Error> {
        require_layout_a(layout)?;
        let mut reader = LsbReader::new(stream);
        let base = reader.take(64)?;
        let (width, shift) = (reader.take(8)? as u32, reader.take(8)? as u32);
        if width + shift > 64 || (width == 0 && shift != 0) {
            return Err(Error::Invalid { at: 64, what: "field exceeds 64 bits" });
        }
        let mut deltas = [0; MAX_LANES];
        for delta in &mut deltas[..DELTAS] {
            *delta = unfold(if width == 0 { 0 } else { reader.take(width)? << shift });
        }
        Ok(lanes::join::<64>(&lanes::sums::<64>(base, &deltas)))
    }
}

/// Returns the number of bits from the highest to the lowest bit set.
#[inline(always)]
fn width(used: u64) -> u32 {
    if used == 0 { 0 } else { 64 - used.leading_zeros() - used.trailing_zeros() }
}

/// Zigzag code: 0, -1, 1, -2, 2 become 0, 1, 2, 3, 4.
#[inline(always)]
fn folded(words: &[u64; MAX_LANES]) -> [u64; MAX_LANES] {
    lanes::deltas::<64>(words).map(|delta| delta << 1 ^ (delta as i64 >> 63) as u64)
}

#[inline(always)]
fn unfold(word: u64) -> u64 {
    word >> 1 ^ (word & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn zigzag_round_trips() {
        for delta in [0, 1, u64::MAX, 1 << 63, (1 << 63) - 1, 12345] {
            let mut words = [0; MAX_LANES];
            words[1] = delta;
            assert_eq!(unfold(folded(&words)[0]), delta);
        }
    }

    /// Steps of -4 are 7 in zigzag code, three bits.
    #[test]
    fn a_ramp_takes_three_bits_per_step() {
        let entry = lanes::join::<64>(&std::array::from_fn(|i| 1000u64.wrapping_sub(4 * i as u64)));
        let mut stream = Stream::default();
        Delta64.encode(&entry, &mut stream);
        assert_eq!(stream.bits(), 80 + 15 * 3);
        assert_eq!(stream.bytes()[..10], [0xe8, 3, 0, 0, 0, 0, 0, 0, 3, 0]);
    }

    #[test]
    fn delta64_satisfies_the_contract() {
        testing::contract(&Delta64, &testing::samples());
    }
}
