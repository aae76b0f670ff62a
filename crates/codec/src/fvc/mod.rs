//! Frequent Value Compression (`docs/reference/format.md`, "FVC").
//!
//! Training finds the most frequent 32-bit values of an allocation. Each word is the code of one of
//! them, or an escape and the word.

use std::{cmp::Reverse, collections::HashMap};

use buddy_core::{Entry, words32};
use serde::{Deserialize, Serialize};

use crate::{
    Error,
    bits::{BitReader, BitSink},
    codec::BitCodec,
};

/// The widest code. All ones is the escape, so a table has at most 255 values.
const MAX_WIDTH: u32 = 8;

/// Frequent Value Compression with the table of one allocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Table")]
pub struct Fvc {
    /// Frequent values in code order.
    values: Vec<u32>,
    /// Values with their codes, sorted by value.
    #[serde(skip)]
    codes: Vec<(u32, u8)>,
}

/// Serialized parameters.
#[derive(Deserialize)]
struct Table {
    values: Vec<u32>,
}

impl TryFrom<Table> for Fvc {
    type Error = Error;

    fn try_from(table: Table) -> Result<Self, Error> {
        Self::new(table.values)
    }
}

impl Fvc {
    /// Creates a codec with this table.
    ///
    /// # Errors
    /// [`Error::Table`] if there are more than 255 values, or duplicates.
    pub fn new(values: Vec<u32>) -> Result<Self, Error> {
        let mut codes: Vec<_> = values.iter().copied().zip(0..u8::MAX).collect();
        codes.sort_unstable();
        let twice = codes.windows(2).any(|pair| pair[0].0 == pair[1].0);
        if twice || codes.len() < values.len() {
            return Err(Error::Table { values: values.len() });
        }
        Ok(Self { values, codes })
    }

    /// Trains the table on a sample: the `2^w - 1` most frequent values, ties by smaller value. The
    /// width `w`, 1 to 8, minimises the bits of streams and table together; ties go to the
    /// narrowest.
    pub fn train(sample: &[Entry]) -> Self {
        let mut counts = HashMap::new();
        for word in sample.iter().flat_map(words32) {
            *counts.entry(word).or_insert(0u64) += 1;
        }
        let mut counts: Vec<(u32, u64)> = counts.into_iter().collect();
        counts.sort_unstable_by_key(|&(value, count)| (Reverse(count), value));
        let total = 32 * sample.len() as u64;
        let cost = |&len: &usize| {
            let hits: u64 = counts[..len].iter().map(|(_, count)| count).sum();
            total * u64::from(width(len)) + 32 * (total - hits) + 32 * len as u64
        };
        let lens = (1..=MAX_WIDTH).map(|width| counts.len().min((1 << width) - 1));
        let len = lens.min_by_key(cost).unwrap_or(0);
        Self::new(counts[..len].iter().map(|&(value, _)| value).collect())
            .expect("at most 255 distinct values")
    }

    /// Returns the frequent values in code order.
    pub fn values(&self) -> &[u32] {
        &self.values
    }

    /// Returns the bits of a code.
    pub fn width(&self) -> u32 {
        width(self.values.len())
    }

    /// Returns the escape code, all ones.
    fn escape(&self) -> u64 {
        (1 << self.width()) - 1
    }
}

/// Returns the code width for `len` values and the escape.
fn width(len: usize) -> u32 {
    (usize::BITS - len.leading_zeros()).max(1)
}

impl BitCodec for Fvc {
    fn max_stream_bits(&self) -> u32 {
        32 * (self.width() + 32)
    }

    fn table_bytes(&self) -> usize {
        4 * self.values.len()
    }

    fn write(&self, entry: &Entry, sink: &mut impl BitSink) {
        for word in words32(entry) {
            match self.codes.binary_search_by_key(&word, |&(value, _)| value) {
                Ok(place) => sink.put(self.codes[place].1.into(), self.width()),
                Err(_) => sink.put(self.escape() << 32 | u64::from(word), self.width() + 32),
            }
        }
    }

    fn read(&self, reader: &mut BitReader) -> Result<Entry, Error> {
        let mut entry = [0; 128];
        for bytes in entry.as_chunks_mut().0 {
            let at = reader.at();
            let code = reader.take(self.width())?;
            let word = match self.values.get(code as usize) {
                Some(&value) => value,
                None if code == self.escape() => reader.take(32)? as u32,
                None => return Err(Error::Invalid { at, what: "code past the end of the table" }),
            };
            *bytes = word.to_le_bytes();
        }
        Ok(entry)
    }
}

#[cfg(test)]
mod tests;
