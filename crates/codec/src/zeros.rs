//! A bitmap of non-zero words, then those words (`docs/reference/format.md`, "zeros").
//!
//! For sparse data, such as activations after a ReLU. Any word can be read alone: its position is
//! the population count of the bitmap below it.

use buddy_core::{ENTRY_BITS, Entry, Layout};
use serde::{Deserialize, Serialize};

use crate::{
    EntryCodec, Error, Stream,
    bits::{LsbReader, LsbWriter},
    codec::require_layout_a,
    lanes::{self, MAX_LANES},
};

/// A zero bitmap over words of `W` bits: 16, 32 or 64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Zeros<const W: usize>;

impl<const W: usize> EntryCodec for Zeros<W> {
    fn max_bits(&self) -> u32 {
        lanes::count::<W>() as u32 + ENTRY_BITS
    }

    #[inline(always)]
    fn size_bits(&self, entry: &Entry) -> u32 {
        let words = lanes::split::<W>(entry);
        let stored = words.iter().fold(0, |stored, &word| stored + u32::from(word != 0));
        lanes::count::<W>() as u32 + W as u32 * stored
    }

    #[inline(always)]
    fn encode(&self, entry: &Entry, stream: &mut Stream) {
        let words = lanes::split::<W>(entry);
        let map = lanes::nonzero(&words);
        let mut writer = LsbWriter::new(stream);
        writer.put(map, lanes::count::<W>() as u32);
        for i in lanes::ones(map) {
            writer.put(words[i], W as u32);
        }
        writer.finish();
    }

    #[inline(always)]
    fn decode(&self, stream: &[u8], layout: Layout) -> Result<Entry, Error> {
        require_layout_a(layout)?;
        let mut reader = LsbReader::new(stream);
        let map = reader.take(lanes::count::<W>() as u32)?;
        let mut words = [0; MAX_LANES];
        for i in lanes::ones(map) {
            words[i] = reader.take(W as u32)?;
        }
        Ok(lanes::join::<W>(&words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn two_non_zero_words_take_a_bitmap_and_two_words() {
        let mut entry = [0; 128];
        entry[4..8].copy_from_slice(&0xdead_beef_u32.to_le_bytes());
        entry[124] = 7;
        let mut stream = Stream::default();
        Zeros::<32>.encode(&entry, &mut stream);
        let expected = [0x02, 0, 0, 0x80, 0xef, 0xbe, 0xad, 0xde, 7, 0, 0, 0];
        assert_eq!((stream.bits(), stream.bytes()), (96, &expected[..]));
    }

    #[test]
    fn every_width_satisfies_the_contract() {
        let samples = testing::samples();
        testing::contract(&Zeros::<16>, &samples);
        testing::contract(&Zeros::<32>, &samples);
        testing::contract(&Zeros::<64>, &samples);
    }
}
