//! Base-Delta-Immediate (`docs/reference/format.md`, "BDI").
//!
//! The entry is read as values of 8, 4 or 2 bytes. Each value is a small difference from one of two
//! bases: zero, or the first value that is not small itself. A 4-bit tag selects the form; the
//! smallest is used.

use buddy_core::{ENTRY_BYTES, Entry, ZERO_ENTRY, is_zero, words64};

use crate::{
    Error,
    bits::{BitReader, BitSink},
    codec::BitCodec,
};

const ZEROS: u64 = 0b0000;
const REPEATED: u64 = 0b0001;
const RAW: u64 = 0b1111;

/// Forms with a base, smallest first; at equal size, lower tag first.
const FORMS: [Form; 6] = [
    Form { tag: 0b0010, value_bytes: 8, delta_bytes: 1 },
    Form { tag: 0b0101, value_bytes: 4, delta_bytes: 1 },
    Form { tag: 0b0011, value_bytes: 8, delta_bytes: 2 },
    Form { tag: 0b0110, value_bytes: 4, delta_bytes: 2 },
    Form { tag: 0b0100, value_bytes: 8, delta_bytes: 4 },
    Form { tag: 0b0111, value_bytes: 2, delta_bytes: 1 },
];

/// Base-Delta-Immediate: a base of 2, 4 or 8 bytes and a short difference per word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Bdi;

impl BitCodec for Bdi {
    fn max_stream_bits(&self) -> u32 {
        4 + 128 * 8
    }

    fn write(&self, entry: &Entry, sink: &mut impl BitSink) {
        let words = words64(entry);
        if is_zero(entry) {
            sink.put(ZEROS << 8, 12);
        } else if words.iter().all(|word| *word == words[0]) {
            sink.put(REPEATED, 4);
            write_number(words[0], 8, sink);
        } else if let Some((form, base)) = FORMS.iter().find_map(|form| Some((form, form.base(entry)?))) {
            form.write(entry, base, sink);
        } else {
            sink.put(RAW, 4);
            entry.iter().for_each(|&byte| sink.put(byte.into(), 8));
        }
    }

    fn read(&self, reader: &mut BitReader) -> Result<Entry, Error> {
        match reader.take(4)? {
            ZEROS => match reader.take(8)? {
                0 => Ok(ZERO_ENTRY),
                _ => Err(Error::Invalid { at: 4, what: "the byte of the zeros form is not zero" }),
            },
            REPEATED => {
                let word = read_number(reader, 8)?;
                let mut entry = ZERO_ENTRY;
                entry.as_chunks_mut().0.fill(word.to_le_bytes());
                Ok(entry)
            }
            RAW => {
                let mut entry = ZERO_ENTRY;
                for byte in &mut entry {
                    *byte = reader.take(8)? as u8;
                }
                Ok(entry)
            }
            tag => match FORMS.iter().find(|form| form.tag == tag) {
                Some(form) => form.read(reader),
                None => Err(Error::Invalid { at: 0, what: "unknown tag" }),
            },
        }
    }
}

/// A form with a base: the widths of values and differences in bytes.
struct Form {
    tag: u64,
    value_bytes: usize,
    delta_bytes: usize,
}

impl Form {
    /// Returns the entry's values as signed integers.
    fn values<'a>(&self, entry: &'a Entry) -> impl Iterator<Item = i64> + use<'a> {
        let bytes = self.value_bytes;
        entry.chunks_exact(bytes).map(move |chunk| {
            let mut word = [0; 8];
            word[..bytes].copy_from_slice(chunk);
            narrow(i64::from_le_bytes(word), bytes)
        })
    }

    /// Returns whether `value` fits in a difference.
    fn is_small(&self, value: i64) -> bool {
        narrow(value, self.delta_bytes) == value
    }

    /// Returns `value - base`, wrapping at the width of a value.
    fn difference(&self, value: i64, base: i64) -> i64 {
        narrow(value.wrapping_sub(base), self.value_bytes)
    }

    /// Returns the base if the form can represent the entry: the first value that is not small, or
    /// 0.
    fn base(&self, entry: &Entry) -> Option<i64> {
        let mut base = None;
        for value in self.values(entry).filter(|&value| !self.is_small(value)) {
            let base = *base.get_or_insert(value);
            if !self.is_small(self.difference(value, base)) {
                return None;
            }
        }
        Some(base.unwrap_or(0))
    }

    fn write(&self, entry: &Entry, base: i64, sink: &mut impl BitSink) {
        sink.put(self.tag, 4);
        write_number(base as u64, self.value_bytes, sink);
        for value in self.values(entry) {
            sink.put(u64::from(!self.is_small(value)), 1);
        }
        for value in self.values(entry) {
            let base = if self.is_small(value) { 0 } else { base };
            write_number(self.difference(value, base) as u64, self.delta_bytes, sink);
        }
    }

    fn read(&self, reader: &mut BitReader) -> Result<Entry, Error> {
        let base = read_number(reader, self.value_bytes)?;
        let mut mask = 0;
        for i in 0..ENTRY_BYTES / self.value_bytes {
            mask |= reader.take(1)? << i;
        }
        let mut entry = ZERO_ENTRY;
        for (i, bytes) in entry.chunks_exact_mut(self.value_bytes).enumerate() {
            let delta = narrow(read_number(reader, self.delta_bytes)? as i64, self.delta_bytes) as u64;
            let base = if mask >> i & 1 == 1 { base } else { 0 };
            bytes.copy_from_slice(&base.wrapping_add(delta).to_le_bytes()[..self.value_bytes]);
        }
        Ok(entry)
    }
}

/// Sign-extends the low `bytes` bytes.
fn narrow(value: i64, bytes: usize) -> i64 {
    let shift = 64 - 8 * bytes as u32;
    value << shift >> shift
}

/// Writes the low `bytes` bytes, most significant first.
fn write_number(value: u64, bytes: usize, sink: &mut impl BitSink) {
    for &byte in &value.to_be_bytes()[8 - bytes..] {
        sink.put(byte.into(), 8);
    }
}

fn read_number(reader: &mut BitReader, bytes: usize) -> Result<u64, Error> {
    (0..bytes).try_fold(0, |value, _| Ok(value << 8 | reader.take(8)?))
}

#[cfg(test)]
mod tests;
