//! Frequent Value Compression (`docs/reference/format.md`, "FVC").
//!
//! A profiling pass over an allocation finds its most frequent 32-bit values. Each word is then the code of one
//! of them, or an escape and the word itself.

use std::{cmp::Reverse, collections::HashMap};

use buddy_core::{Entry, words32};
use serde::{Deserialize, Serialize};

use crate::{
    Error,
    bits::{BitReader, BitSink},
    codec::BitCodec,
};

/// The widest code. Its all-ones is the escape, so a table has at most 255 values.
const MAX_WIDTH: u32 = 8;

/// Frequent Value Compression with the table of one allocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Table")]
pub struct Fvc {
    /// The frequent values; the code of each is its position.
    values: Vec<u32>,
    /// Each value with its code, by value.
    #[serde(skip)]
    codes: Vec<(u32, u8)>,
}

/// What is kept of a table in a file.
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
    /// A codec with this table.
    ///
    /// # Errors
    /// [`Error::Table`] if there are more than 255 values, or one of them twice.
    pub fn new(values: Vec<u32>) -> Result<Self, Error> {
        let mut codes: Vec<_> = values.iter().copied().zip(0..u8::MAX).collect();
        codes.sort_unstable();
        let twice = codes.windows(2).any(|pair| pair[0].0 == pair[1].0);
        if twice || codes.len() < values.len() {
            return Err(Error::Table { values: values.len() });
        }
        Ok(Self { values, codes })
    }

    /// Finds the table of an allocation from a sample of its entries: the `2^w - 1` most frequent values, of
    /// equally frequent ones the smaller first, for the width `w` of 1 to 8 bits that makes the streams of the
    /// sample and the table smallest in all, of equal ones the narrowest.
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
            .expect("at most 255 values, each once")
    }

    /// The frequent values; the code of each is its position.
    pub fn values(&self) -> &[u32] {
        &self.values
    }

    /// Bits of a code.
    pub fn width(&self) -> u32 {
        width(self.values.len())
    }

    /// The code that says that a word follows: all ones.
    fn escape(&self) -> u64 {
        (1 << self.width()) - 1
    }
}

/// Bits of a code where the table has `len` values: enough for them and the escape.
fn width(len: usize) -> u32 {
    (usize::BITS - len.leading_zeros()).max(1)
}

impl BitCodec for Fvc {
    fn longest(&self) -> u32 {
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
                None => return Err(Error::Invalid { at, what: "a code past the table" }),
            };
            *bytes = word.to_le_bytes();
        }
        Ok(entry)
    }
}

#[cfg(test)]
mod tests;
