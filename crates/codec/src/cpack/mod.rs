//! C-Pack (`docs/reference/format.md`, "C-Pack").
//!
//! Each 32-bit word is compared with zero and with a dictionary of earlier words in the entry, from
//! the most significant byte down. The decoder rebuilds the dictionary, so it is not stored.

use buddy_core::{Entry, words32};

use crate::{
    Error,
    bits::{BitReader, BitSink},
    codec::BitCodec,
};

/// Dictionary capacity in words.
const SLOTS: usize = 16;

/// C-Pack: words matched against a dictionary of earlier words in the entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Cpack;

impl BitCodec for Cpack {
    fn max_stream_bits(&self) -> u32 {
        32 * (2 + 32)
    }

    fn write(&self, entry: &Entry, sink: &mut impl BitSink) {
        let mut dictionary = Dictionary::default();
        for word in words32(entry) {
            write_word(word, &mut dictionary, sink);
        }
    }

    fn read(&self, reader: &mut BitReader) -> Result<Entry, Error> {
        let mut dictionary = Dictionary::default();
        let mut entry = [0; 128];
        for bytes in entry.as_chunks_mut().0 {
            *bytes = read_word(&mut dictionary, reader)?.to_le_bytes();
        }
        Ok(entry)
    }
}

/// Dictionary with FIFO replacement: a ring of the last pushed words.
#[derive(Default)]
struct Dictionary {
    words: [u32; SLOTS],
    pushed: usize,
}

impl Dictionary {
    fn push(&mut self, word: u32) -> u32 {
        self.words[self.pushed % SLOTS] = word;
        self.pushed += 1;
        word
    }

    fn filled(&self) -> &[u32] {
        &self.words[..self.pushed.min(SLOTS)]
    }

    /// Returns the lowest slot whose word has the same `bytes` most significant bytes.
    fn find(&self, word: u32, bytes: u32) -> Option<u64> {
        let tail = 32 - 8 * bytes;
        self.filled().iter().position(|&known| (known ^ word) >> tail == 0).map(|slot| slot as u64)
    }
}

/// Writes a word with the cheapest matching code.
fn write_word(word: u32, dictionary: &mut Dictionary, sink: &mut impl BitSink) {
    let literal = |bytes: u32| u64::from(word) & ((1 << (8 * bytes)) - 1);
    if word == 0 {
        return sink.put(0b00, 2);
    }
    if let Some(slot) = dictionary.find(word, 4) {
        return sink.put(0b10 << 4 | slot, 6);
    }
    if word <= 0xff {
        return sink.put(0b1101 << 8 | literal(1), 12);
    }
    if let Some(slot) = dictionary.find(word, 3) {
        sink.put((0b1110 << 4 | slot) << 8 | literal(1), 16);
    } else if let Some(slot) = dictionary.find(word, 2) {
        sink.put((0b1100 << 4 | slot) << 16 | literal(2), 24);
    } else {
        sink.put(0b01 << 32 | literal(4), 34);
    }
    dictionary.push(word);
}

/// Reads a word. The code determines whether the word enters the dictionary.
fn read_word(dictionary: &mut Dictionary, reader: &mut BitReader) -> Result<u32, Error> {
    let at = reader.at();
    let invalid = |what| Error::Invalid { at, what };
    let code = match reader.take(2)? {
        0b11 => 0b1100 | reader.take(2)?,
        code => code,
    };
    let mut known = || {
        let slot = reader.take(4)? as usize;
        dictionary.filled().get(slot).copied().ok_or(invalid("dictionary slot is empty"))
    };
    match code {
        0b00 => Ok(0),
        0b01 => Ok(dictionary.push(reader.take(32)? as u32)),
        0b10 => known(),
        0b1100 => {
            let head = known()? & 0xffff_0000;
            Ok(dictionary.push(head | reader.take(16)? as u32))
        }
        0b1101 => Ok(reader.take(8)? as u32),
        0b1110 => {
            let head = known()? & 0xffff_ff00;
            Ok(dictionary.push(head | reader.take(8)? as u32))
        }
        _ => Err(invalid("unknown pattern code")),
    }
}

#[cfg(test)]
mod tests;
