//! Doubles of a smooth field: the differences of neighbours, in as few bits as the largest needs
//! (`docs/reference/format.md`, "delta64").
//!
//! A signed difference is folded so that small ones of either sign have leading zeros; the bits that no
//! difference uses, above and below, are left out. Each of the 15 fields can be read alone. Against bit planes
//! over 64-bit lanes it saves the mask, some four planes' worth, where the planes in use lie side by side.

use buddy_core::{Entry, Layout};
use serde::{Deserialize, Serialize};

use crate::{
    EntryCodec, Error, Stream,
    bits::{LsbReader, LsbWriter},
    codec::only_a,
    lanes::{self, MOST},
};

/// Differences in an entry.
const DELTAS: usize = 15;

/// Folded differences of 64-bit words, packed.
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
        only_a(layout)?;
        let mut reader = LsbReader::new(stream);
        let base = reader.take(64)?;
        let (width, shift) = (reader.take(8)? as u32, reader.take(8)? as u32);
        if width + shift > 64 || (width == 0 && shift != 0) {
            return Err(Error::Invalid { at: 64, what: "a field that leaves its 64 bits" });
        }
        let mut deltas = [0; MOST];
        for delta in &mut deltas[..DELTAS] {
            *delta = unfold(if width == 0 { 0 } else { reader.take(width)? << shift });
        }
        Ok(lanes::join::<64>(&lanes::sums::<64>(base, &deltas)))
    }
}

/// Bits from the highest to the lowest in use.
#[inline(always)]
fn width(used: u64) -> u32 {
    if used == 0 { 0 } else { 64 - used.leading_zeros() - used.trailing_zeros() }
}

/// 0, -1, 1, -2, 2 become 0, 1, 2, 3, 4.
#[inline(always)]
fn folded(words: &[u64; MOST]) -> [u64; MOST] {
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
    fn folding_goes_both_ways() {
        for delta in [0, 1, u64::MAX, 1 << 63, (1 << 63) - 1, 12345] {
            let mut words = [0; MOST];
            words[1] = delta;
            assert_eq!(unfold(folded(&words)[0]), delta);
        }
    }

    /// Steps of -4 fold to 7, three bits wide.
    #[test]
    fn a_ramp_takes_three_bits_a_step() {
        let entry = lanes::join::<64>(&std::array::from_fn(|i| 1000u64.wrapping_sub(4 * i as u64)));
        let mut stream = Stream::default();
        Delta64.encode(&entry, &mut stream);
        assert_eq!(stream.bits(), 80 + 15 * 3);
        assert_eq!(stream.bytes()[..10], [0xe8, 3, 0, 0, 0, 0, 0, 0, 3, 0]);
    }

    #[test]
    fn the_contract_is_kept() {
        testing::contract(&Delta64, &testing::samples());
    }
}
