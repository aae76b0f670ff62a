//! BPC with or without its transform, whichever is shorter (`docs/reference/format.md`,
//! "bpc-best").
//!
//! Source: Compresso (Choukse, Erez and Alameldeen, MICRO 2018), which codes each block both ways
//! in parallel and keeps the better one. Sparse data gains: the transform doubles the number of
//! values next to isolated zeros.

use buddy_core::{Entry, Layout, words32};

use super::{
    columns::{Columns, deltas},
    read, write,
};
use crate::{
    EntryCodec, Error, Stream,
    bits::{BitReader, BitSink, BitWriter},
    codec::require_layout_a,
    simd,
};

pub(crate) mod reference;

/// Bit of the stream's first position: the words follow untransformed.
const PLAIN: u64 = 1;
/// Words per entry.
const WORDS: usize = 32;

/// BPC over 32-bit words, with or without its transform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct BpcBest;

impl EntryCodec for BpcBest {
    fn max_bits(&self) -> u32 {
        reference::MAX_BITS
    }

    #[inline(always)]
    fn size_bits(&self, entry: &Entry) -> u32 {
        let planes = Columns::of(&deltas(entry));
        1 + planes.bits().min(word_bits(&words32(entry)))
    }

    #[inline(always)]
    fn encode(&self, entry: &Entry, stream: &mut Stream) {
        self.encode_within(entry, reference::MAX_BITS, stream);
    }

    #[inline(always)]
    fn encode_within(&self, entry: &Entry, limit: u32, stream: &mut Stream) -> bool {
        let (deltas, words) = (deltas(entry), words32(entry));
        let columns = Columns::of(&deltas);
        let (transformed, plain) = (columns.bits(), word_bits(&words));
        if 1 + transformed.min(plain) > limit {
            return false;
        }
        let mut writer = BitWriter::new(stream);
        if plain < transformed {
            writer.put(PLAIN, 1);
            write_words(&words, &mut writer);
        } else {
            writer.put(0, 1);
            write(&deltas, &columns, &mut writer);
        }
        writer.finish();
        true
    }

    #[inline(always)]
    fn decode(&self, stream: &[u8], layout: Layout) -> Result<Entry, Error> {
        require_layout_a(layout)?;
        let mut reader = BitReader::new(stream);
        if reader.bit()? { read_words(&mut reader) } else { read(&mut reader) }
    }
}

/// Returns whether a word has one bit set, or two adjacent ones. True for zero.
#[inline(always)]
fn is_short(word: u32) -> bool {
    let lowest = word & word.wrapping_neg();
    word == lowest || word == lowest.wrapping_mul(3)
}

/// Returns the bitmap of zero words.
#[inline(always)]
fn zero_words(words: &[u32; WORDS]) -> u32 {
    simd::top_bits(&words.map(|word| u32::from(word == 0) << 31))
}

/// Returns the bits that [`write_words`] writes.
#[inline(always)]
fn word_bits(words: &[u32; WORDS]) -> u32 {
    let zero = zero_words(words);
    let starts = zero & !(zero << 1);
    let lone = starts & !(zero >> 1);
    let cost = |word: u32| match word {
        0 => 0,
        u32::MAX => 5,
        _ if is_short(word) => 10,
        _ => 33,
    };
    7 * (starts & !lone).count_ones()
        + 3 * lone.count_ones()
        + words.iter().fold(0, |bits, &word| bits + cost(word))
}

#[inline(always)]
fn write_words(words: &[u32; WORDS], sink: &mut impl BitSink) {
    let zero = zero_words(words);
    let mut i = 0;
    while i < WORDS {
        let (word, run) = (words[i], (zero >> i).trailing_ones() as usize);
        let index = u64::from(word.trailing_zeros());
        match (run, word) {
            (0, u32::MAX) => sink.put(0b00000, 5),
            (0, _) if word.is_power_of_two() => sink.put(0b00011 << 5 | index, 10),
            (0, _) if is_short(word) => sink.put(0b00010 << 5 | index, 10),
            (0, _) => {
                sink.put(1, 1);
                sink.put(u64::from(word), 32);
            }
            (1, _) => sink.put(0b001, 3),
            (_, _) => sink.put(0b01 << 5 | (run as u64 - 2), 7),
        }
        i += run.max(1);
    }
}

/// Reads untransformed words. One window of the stream holds any code completely.
#[inline(always)]
fn read_words(reader: &mut BitReader) -> Result<Entry, Error> {
    let mut entry = [0; 128];
    let mut i = 0;
    while i < WORDS {
        let (at, window) = (reader.at(), reader.window());
        let field = |from: u32, count: u32| ((window << from) >> (64 - count)) as u32;
        let (word, bits, run) = match window.leading_zeros() {
            0 => (field(1, 32), 33, 1),
            1 => (0, 7, field(2, 5) as usize + 2),
            2 => (0, 3, 1),
            3 => {
                let pattern = if field(4, 1) == 1 { 0b1u64 } else { 0b11 } << field(5, 5);
                if pattern > u64::from(u32::MAX) {
                    reader.skip(10)?;
                    return Err(Error::Invalid { at, what: reference::BAD_INDEX });
                }
                (pattern as u32, 10, 1)
            }
            4 => {
                reader.skip(5)?;
                return Err(Error::Invalid { at, what: reference::NO_CODE });
            }
            _ => (u32::MAX, 5, 1),
        };
        reader.skip(bits)?;
        if run > WORDS - i {
            return Err(Error::Invalid { at, what: reference::BAD_RUN });
        }
        entry[4 * i..4 * i + 4].copy_from_slice(&word.to_le_bytes());
        i += run;
    }
    Ok(entry)
}

#[cfg(test)]
mod tests;
