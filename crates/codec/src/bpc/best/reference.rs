//! Reference implementation of `bpc-best`, following `docs/reference/format.md` line by line.

use buddy_core::{Entry, words32};

use crate::{
    Error,
    bits::{BitCount, BitReader, BitSink},
    bpc::reference::Reference as Transformed,
    codec::BitCodec,
};

/// The longest stream: the flag, and every word uncompressed. The transformed form is kept only
/// where it is not longer.
pub(super) const MAX_BITS: u32 = 1 + 32 * 33;

/// Error for two adjacent ones past the top of a word.
pub(super) const BAD_INDEX: &str = "a bit index past the top of a word";
/// Error for a run of zero words that is too long.
pub(super) const BAD_RUN: &str = "a run of zero words past the last word";
/// Error for the code of a zero plane whose XOR is not zero, which words do not have.
pub(super) const NO_CODE: &str = "a code that untransformed words do not have";

/// Reference implementation of [`BpcBest`](super::BpcBest).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reference;

impl BitCodec for Reference {
    fn max_stream_bits(&self) -> u32 {
        MAX_BITS
    }

    fn write(&self, entry: &Entry, sink: &mut impl BitSink) {
        let words = words32(entry);
        let (mut transformed, mut plain) = (BitCount::default(), BitCount::default());
        Transformed.write(entry, &mut transformed);
        write_words(&words, &mut plain);
        if plain.0 < transformed.0 {
            sink.put(1, 1);
            write_words(&words, sink);
        } else {
            sink.put(0, 1);
            Transformed.write(entry, sink);
        }
    }

    fn read(&self, reader: &mut BitReader) -> Result<Entry, Error> {
        if reader.bit()? { read_words(reader) } else { Transformed.read(reader) }
    }
}

fn write_words(words: &[u32; 32], sink: &mut impl BitSink) {
    let mut i = 0;
    while i < 32 {
        let run = words[i..].iter().take_while(|&&word| word == 0).count();
        match (run, words[i]) {
            (0, u32::MAX) => sink.put(0b00000, 5),
            (0, word) if word.count_ones() == 1 => {
                sink.put(0b00011 << 5 | u64::from(word.trailing_zeros()), 10)
            }
            (0, word) if word.count_ones() == 2 && word >> word.trailing_zeros() == 0b11 => {
                sink.put(0b00010 << 5 | u64::from(word.trailing_zeros()), 10)
            }
            (0, word) => sink.put(1 << 32 | u64::from(word), 33),
            (1, _) => sink.put(0b001, 3),
            (_, _) => sink.put(0b01 << 5 | (run as u64 - 2), 7),
        }
        i += run.max(1);
    }
}

fn read_words(reader: &mut BitReader) -> Result<Entry, Error> {
    let mut words: Vec<u32> = Vec::new();
    while words.len() < 32 {
        let at = reader.at();
        let invalid = |what| Error::Invalid { at, what };
        if reader.bit()? {
            words.push(reader.take(32)? as u32);
        } else if reader.bit()? {
            let run = reader.take(5)? as usize + 2;
            words.resize(words.len() + run, 0);
        } else if reader.bit()? {
            words.push(0);
        } else {
            match reader.take(2)? {
                0 => words.push(u32::MAX),
                1 => return Err(invalid(NO_CODE)),
                code => {
                    let pattern = if code == 3 { 0b1u64 } else { 0b11 } << reader.take(5)?;
                    words.push(u32::try_from(pattern).map_err(|_| invalid(BAD_INDEX))?);
                }
            }
        }
        if words.len() > 32 {
            return Err(invalid(BAD_RUN));
        }
    }
    let mut entry = [0; 128];
    for (bytes, word) in entry.as_chunks_mut().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
    Ok(entry)
}
