//! Words as their places in a table of frequent values (`docs/reference/format.md`, "table32, table64").

use buddy_core::{Entry, Layout, SizeClass};
use serde::{Deserialize, Serialize};

use super::{
    forms::{ABSENT, Content, Forms, MAX_BITS, Rest},
    index::Index,
    values::{MOST_VALUES, frequent_values},
    words,
};
use crate::{EntryCodec, Error, Stream, codec::only_a, simd::Lengths};

/// A table of frequent words, `N` of which make an entry: 32 or 16.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Values", into = "Values")]
pub struct Table<const N: usize> {
    values: Vec<u64>,
    index: Either,
    forms: Forms<N>,
}

/// Where its values stand, by their width.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Either {
    Narrow(Index<u32>),
    Wide(Index<u64>),
}

/// A table in a file: each value in hex, most significant digit first, all of a word's digits, one after the other.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Values {
    values: String,
}

impl<const N: usize> From<Table<N>> for Values {
    fn from(table: Table<N>) -> Self {
        Self { values: table.text() }
    }
}

impl<const N: usize> TryFrom<Values> for Table<N> {
    type Error = Error;

    fn try_from(Values { values }: Values) -> Result<Self, Error> {
        Self::parse(&values)
    }
}

impl<const N: usize> Table<N> {
    /// The values as a file has them.
    pub(super) fn text(&self) -> String {
        let digits = words::bits(N) as usize / 4;
        self.values.iter().map(|value| format!("{value:0digits$x}")).collect()
    }

    /// The table of values in a file.
    pub(super) fn parse(values: &str) -> Result<Self, Error> {
        let digits = words::bits(N) as usize / 4;
        let wrong = || Error::Parameters(format!("a table's values are words of {digits} hex digits each"));
        let word = |digits: &[u8]| {
            let text = std::str::from_utf8(digits)
                .ok()
                .filter(|text| text.bytes().all(|digit| digit.is_ascii_hexdigit()));
            u64::from_str_radix(text.ok_or_else(wrong)?, 16).map_err(|_| wrong())
        };
        if !values.len().is_multiple_of(digits) {
            return Err(wrong());
        }
        Self::new(values.as_bytes().chunks(digits).map(word).collect::<Result<_, _>>()?)
    }

    /// A table of the value 0.
    pub(super) fn one() -> Self {
        Self::new(vec![0]).expect("one value")
    }

    /// A codec with these values, the most frequent first.
    ///
    /// # Errors
    /// [`Error::Parameters`] unless there are 1 to 32768 values, all different, none wider than a word, and a hash of ours parts them.
    pub fn new(values: Vec<u64>) -> Result<Self, Error> {
        let mut sorted = values.clone();
        sorted.sort_unstable();
        sorted.dedup();
        let wide = sorted.last().is_some_and(|&value| value > words::mask(N));
        if values.is_empty() || values.len() > MOST_VALUES || sorted.len() < values.len() || wide {
            let what =
                format!("a table of {} values; it has 1 to {MOST_VALUES}, all different", values.len());
            return Err(Error::Parameters(what));
        }
        let most = usize::BITS - (values.len() - 1).leading_zeros();
        let forms = Forms::new(Rest::Word, most, |_| Vec::new());
        let index = if N == 32 {
            Index::new(&values.iter().map(|&value| value as u32).collect::<Vec<_>>()).map(Either::Narrow)
        } else {
            Index::new(&values).map(Either::Wide)
        };
        let unparted =
            || Error::Parameters(format!("a table of {} values that no hash of ours parts", values.len()));
        let index = index.ok_or_else(unparted)?;
        Ok(Self { index, values, forms })
    }

    /// Finds the table of an allocation from a sample of its entries: its most frequent words, as many as
    /// `frequent_values` finds best for fields of one width.
    pub fn train(sample: &[Entry]) -> Self {
        let bytes = |judged: &[[u64; N]], len: usize, ()| -> usize {
            let forms = Forms::<N>::new(Rest::Word, len.ilog2(), |_| Vec::new());
            let bytes = |ranks: &[u64; N]| {
                let numbers = ranks.map(|rank| if rank < len as u64 { rank } else { ABSENT });
                SizeClass::from_bits(forms.size(&numbers)).bytes()
            };
            judged.iter().map(bytes).sum()
        };
        Self::of_first(frequent_values(sample, &[()], bytes).0)
    }

    /// The codec of the first of these values, at most 32768 words, each once: of all, or of half as many until a hash parts them.
    pub(super) fn of_first(mut values: Vec<u64>) -> Self {
        values.resize(values.len().max(1), 0);
        loop {
            match Self::new(values.clone()) {
                Ok(table) => return table,
                Err(_) => values.truncate(values.len().div_ceil(2)),
            }
        }
    }

    /// The values; the number of each is its place.
    pub fn values(&self) -> &[u64] {
        &self.values
    }

    pub(super) fn forms(&self) -> &Forms<N> {
        &self.forms
    }

    /// The place of every word, or [`ABSENT`].
    #[inline(always)]
    pub(super) fn places(&self, entry: &Entry) -> [u64; N] {
        self.numbers(entry, MAX_BITS).expect("no limit is too small")
    }

    /// What the places of an entry's words take in all. A word without one has a number that is longer than [any](Self::longest).
    #[inline(always)]
    pub(super) fn sum(&self, entry: &Entry, lengths: &Lengths) -> u32 {
        match &self.index {
            Either::Narrow(index) if N == 32 => index.sum::<N>(entry, lengths),
            Either::Wide(index) if N == 16 => index.sum::<N>(entry, lengths),
            _ => unreachable!("the index is as wide as the words"),
        }
    }

    /// The most bits of a number that a value may have; all numbers of words without one have more.
    pub(super) fn longest(&self) -> usize {
        match &self.index {
            Either::Narrow(index) => index.absent().ilog2() as usize,
            Either::Wide(index) => index.absent().ilog2() as usize,
        }
    }

    /// The numbers of the entry's words; none if its stream has too many bits for the limit, whatever they are.
    #[inline(always)]
    fn numbers(&self, entry: &Entry, limit: u32) -> Option<[u64; N]> {
        match &self.index {
            Either::Narrow(index) if N == 32 => index.numbers(entry, limit),
            Either::Wide(index) if N == 16 => index.numbers(entry, limit),
            _ => unreachable!("the index is as wide as the words"),
        }
    }
}

impl<const N: usize> EntryCodec for Table<N> {
    fn max_bits(&self) -> u32 {
        MAX_BITS
    }

    fn parameter_bytes(&self) -> usize {
        self.values.len() * words::bits(N) as usize / 8
    }

    #[inline(always)]
    fn size_bits(&self, entry: &Entry) -> u32 {
        match &self.index {
            Either::Narrow(index) if N == 32 => index.size(entry, &self.forms),
            Either::Wide(index) if N == 16 => index.size(entry, &self.forms),
            _ => unreachable!("the index is as wide as the words"),
        }
    }

    #[inline(always)]
    fn encode(&self, entry: &Entry, stream: &mut Stream) {
        self.encode_within(entry, MAX_BITS, stream);
    }

    #[inline(always)]
    fn encode_within(&self, entry: &Entry, limit: u32, stream: &mut Stream) -> bool {
        self.numbers(entry, limit).is_some_and(
            #[inline(always)]
            |numbers| self.forms.write(entry, &numbers, limit, stream),
        )
    }

    #[inline(always)]
    fn decode(&self, stream: &[u8], layout: Layout) -> Result<Entry, Error> {
        only_a(layout)?;
        let (mut numbers, replaced) = match self.forms.read(stream)? {
            Content::Raw(entry) => return Ok(entry),
            Content::Numbers(numbers, replaced) => (numbers, replaced),
        };
        for number in &mut numbers {
            let value = self.values.get(*number as usize);
            *number = *value.ok_or(Error::Invalid { at: 0, what: "a number past the table" })?;
        }
        replaced.replace(&mut numbers);
        Ok(words::join(&numbers))
    }
}
