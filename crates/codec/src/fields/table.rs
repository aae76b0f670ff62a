//! Indices into a dictionary of frequent values (`docs/reference/format.md`, "table32, table64").

use buddy_core::{Entry, Layout, SizeClass};
use serde::{Deserialize, Serialize};

use super::{
    forms::{ABSENT, Content, Forms, MAX_BITS, Payload},
    index::Index,
    values::{MAX_VALUES, frequent_values},
    words,
};
use crate::{EntryCodec, Error, Stream, codec::require_layout_a, simd::Lengths};

/// A dictionary of frequent words; `N` words per entry, 32 or 16.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Values", into = "Values")]
pub struct Table<const N: usize> {
    values: Vec<u64>,
    index: WordIndex,
    forms: Forms<N>,
}

/// Index by word width.
#[derive(Debug, Clone, PartialEq, Eq)]
enum WordIndex {
    Narrow(Index<u32>),
    Wide(Index<u64>),
}

/// Serialized table: all values in hex, most significant digit first, concatenated at full word
/// width.
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
    /// Returns the values in serialized form.
    pub(super) fn text(&self) -> String {
        let digits = words::bits(N) as usize / 4;
        self.values.iter().map(|value| format!("{value:0digits$x}")).collect()
    }

    /// Parses the serialized values.
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

    /// Creates a table with the single value 0.
    pub(super) fn single_zero() -> Self {
        Self::new(vec![0]).expect("one value is valid")
    }

    /// Creates a codec with these values, most frequent first.
    ///
    /// # Errors
    /// [`Error::Parameters`] unless there are 1 to 32768 distinct values that fit in a word and
    /// have a perfect hash.
    pub fn new(values: Vec<u64>) -> Result<Self, Error> {
        let mut sorted = values.clone();
        sorted.sort_unstable();
        sorted.dedup();
        let wide = sorted.last().is_some_and(|&value| value > words::mask(N));
        if values.is_empty() || values.len() > MAX_VALUES || sorted.len() < values.len() || wide {
            let what =
                format!("a table of {} values; the limit is 1 to {MAX_VALUES}, all different", values.len());
            return Err(Error::Parameters(what));
        }
        let most = usize::BITS - (values.len() - 1).leading_zeros();
        let forms = Forms::new(Payload::Word, most, |_| Vec::new());
        let index = if N == 32 {
            Index::new(&values.iter().map(|&value| value as u32).collect::<Vec<_>>()).map(WordIndex::Narrow)
        } else {
            Index::new(&values).map(WordIndex::Wide)
        };
        let unparted =
            || Error::Parameters(format!("found no perfect hash for a table of {} values", values.len()));
        let index = index.ok_or_else(unparted)?;
        Ok(Self { index, values, forms })
    }

    /// Trains the dictionary on a sample: its most frequent words, as many as `frequent_values`
    /// finds best for fixed-width fields.
    pub fn train(sample: &[Entry]) -> Self {
        let bytes = |judged: &[[u64; N]], len: usize, ()| -> usize {
            let forms = Forms::<N>::new(Payload::Word, len.ilog2(), |_| Vec::new());
            let bytes = |ranks: &[u64; N]| {
                let numbers = ranks.map(|rank| if rank < len as u64 { rank } else { ABSENT });
                SizeClass::from_bits(forms.size(&numbers)).bytes()
            };
            judged.iter().map(bytes).sum()
        };
        Self::from_most_frequent(frequent_values(sample, &[()], bytes).0)
    }

    /// Creates the table of these distinct values, at most 32768; keeps the first half until a
    /// perfect hash exists.
    pub(super) fn from_most_frequent(mut values: Vec<u64>) -> Self {
        values.resize(values.len().max(1), 0);
        loop {
            match Self::new(values.clone()) {
                Ok(table) => return table,
                Err(_) => values.truncate(values.len().div_ceil(2)),
            }
        }
    }

    /// Returns the values in index order.
    pub fn values(&self) -> &[u64] {
        &self.values
    }

    pub(super) fn forms(&self) -> &Forms<N> {
        &self.forms
    }

    /// Returns the index of every word, or [`ABSENT`].
    #[inline(always)]
    pub(super) fn indices(&self, entry: &Entry) -> [u64; N] {
        self.numbers(entry, MAX_BITS).expect("the limit allows any stream")
    }

    /// Returns the total code bits of an entry's indices. Absent words give indices longer than
    /// [`longest`](Self::longest).
    #[inline(always)]
    pub(super) fn sum(&self, entry: &Entry, lengths: &Lengths) -> u32 {
        match &self.index {
            WordIndex::Narrow(index) if N == 32 => index.sum::<N>(entry, lengths),
            WordIndex::Wide(index) if N == 16 => index.sum::<N>(entry, lengths),
            _ => unreachable!("the index has the width of the words"),
        }
    }

    /// Returns the bit length of the largest index; lookups of absent words give longer numbers.
    pub(super) fn longest(&self) -> usize {
        match &self.index {
            WordIndex::Narrow(index) => index.absent().ilog2() as usize,
            WordIndex::Wide(index) => index.absent().ilog2() as usize,
        }
    }

    /// Returns the indices of the entry's words; `None` if the stream exceeds `limit` for certain.
    #[inline(always)]
    fn numbers(&self, entry: &Entry, limit: u32) -> Option<[u64; N]> {
        match &self.index {
            WordIndex::Narrow(index) if N == 32 => index.numbers(entry, limit),
            WordIndex::Wide(index) if N == 16 => index.numbers(entry, limit),
            _ => unreachable!("the index has the width of the words"),
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
            WordIndex::Narrow(index) if N == 32 => index.size(entry, &self.forms),
            WordIndex::Wide(index) if N == 16 => index.size(entry, &self.forms),
            _ => unreachable!("the index has the width of the words"),
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
        require_layout_a(layout)?;
        let (mut numbers, replaced) = match self.forms.read(stream)? {
            Content::Raw(entry) => return Ok(entry),
            Content::Numbers(numbers, replaced) => (numbers, replaced),
        };
        for number in &mut numbers {
            let value = self.values.get(*number as usize);
            *number = *value.ok_or(Error::Invalid { at: 0, what: "index past the end of the table" })?;
        }
        replaced.replace(&mut numbers);
        Ok(words::join(&numbers))
    }
}
