//! Frequent Pattern Compression (`docs/reference/format.md`, "FPC").
//!
//! Each 32-bit word, or run of zero words, is a 3-bit prefix and the payload of its pattern.

use buddy_core::{Entry, words32};

use crate::{
    Error,
    bits::{BitReader, BitSink, fits_signed, sign_extend},
    codec::BitCodec,
};

const ZERO_RUN: u64 = 0b000;
const SIGNED_4: u64 = 0b001;
const SIGNED_8: u64 = 0b010;
const SIGNED_16: u64 = 0b011;
const HIGH_HALF: u64 = 0b100;
const TWO_BYTES: u64 = 0b101;
const REPEATED: u64 = 0b110;

/// Longest zero run in words.
const LONGEST_RUN: usize = 8;
/// One in the lowest bit of each byte; multiplying by a byte repeats it.
const EACH_BYTE: u32 = 0x0101_0101;

/// Frequent Pattern Compression: a 3-bit prefix per 32-bit word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Fpc;

impl BitCodec for Fpc {
    fn max_stream_bits(&self) -> u32 {
        32 * (3 + 32)
    }

    fn write(&self, entry: &Entry, sink: &mut impl BitSink) {
        let words = words32(entry);
        let mut rest = &words[..];
        while let Some(&word) = rest.first() {
            let run = rest.iter().take(LONGEST_RUN).take_while(|&&word| word == 0).count();
            if run > 0 {
                sink.put(ZERO_RUN << 3 | (run as u64 - 1), 6);
            } else {
                write_word(word, sink);
            }
            rest = &rest[run.max(1)..];
        }
    }

    fn read(&self, reader: &mut BitReader) -> Result<Entry, Error> {
        let mut entry = [0; 128];
        let mut rest = entry.as_chunks_mut().0;
        while let Some((word, after)) = rest.split_first_mut() {
            let at = reader.at();
            match reader.take(3)? {
                ZERO_RUN => {
                    let more = reader.take(3)? as usize;
                    rest = after
                        .get_mut(more..)
                        .ok_or(Error::Invalid { at, what: "zero run past the last word" })?;
                }
                prefix => {
                    *word = read_word(prefix, reader)?.to_le_bytes();
                    rest = after;
                }
            }
        }
        Ok(entry)
    }
}

/// Writes a non-zero word. The first matching pattern is the cheapest.
fn write_word(word: u32, sink: &mut impl BitSink) {
    let (high, low) = (word >> 16, word & 0xffff);
    let mut put = |prefix: u64, data: u32, bits: u32| {
        sink.put(prefix << bits | u64::from(data) & ((1 << bits) - 1), 3 + bits);
    };
    if fits_signed(word, 4) {
        put(SIGNED_4, word, 4);
    } else if fits_signed(word, 8) {
        put(SIGNED_8, word, 8);
    } else if word == (word & 0xff) * EACH_BYTE {
        put(REPEATED, word, 8);
    } else if fits_signed(word, 16) {
        put(SIGNED_16, word, 16);
    } else if low == 0 {
        put(HIGH_HALF, high, 16);
    } else if is_signed_byte(high) && is_signed_byte(low) {
        put(TWO_BYTES, (high & 0xff) << 8 | low & 0xff, 16);
    } else {
        put(0b111, word, 32);
    }
}

/// Returns whether a 16-bit half, read as signed, fits in 8 bits.
fn is_signed_byte(half: u32) -> bool {
    fits_signed(sign_extend(half.into(), 16), 8)
}

fn read_word(prefix: u64, reader: &mut BitReader) -> Result<u32, Error> {
    Ok(match prefix {
        SIGNED_4 => sign_extend(reader.take(4)?, 4),
        SIGNED_8 => sign_extend(reader.take(8)?, 8),
        REPEATED => reader.take(8)? as u32 * EACH_BYTE,
        SIGNED_16 => sign_extend(reader.take(16)?, 16),
        HIGH_HALF => (reader.take(16)? as u32) << 16,
        TWO_BYTES => sign_extend(reader.take(8)?, 8) << 16 | sign_extend(reader.take(8)?, 8) & 0xffff,
        _ => reader.take(32)? as u32,
    })
}

#[cfg(test)]
mod tests;
