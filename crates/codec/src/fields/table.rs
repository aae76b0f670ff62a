//! Words as their places in a table of frequent values (`docs/format.md`, "table32, table64").

use std::{cmp::Reverse, collections::HashMap};

use buddy_core::{Entry, Layout, SizeClass, is_zero};
use serde::{Deserialize, Serialize};

use super::{
    forms::{ABSENT, Content, Forms, MAX_BITS, Rest},
    hash::Places,
    words,
};
use crate::{EntryCodec, Error, Stream, codec::only_a};

/// The most values of a table: what 15 bits number, the widest field of two sectors.
const MOST_VALUES: usize = 1 << 15;
/// Entries of a sample that are judged together: they lie side by side in memory.
const RUN_ENTRIES: usize = 8;

/// A table of frequent words, `N` of which make an entry: 32 or 16.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Values", into = "Values")]
pub struct Table<const N: usize> {
    values: Vec<u64>,
    places: Places,
    forms: Forms<N>,
}

/// A table in a file: each value in hex, most significant digit first, all of a word's digits, one after the other.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Values {
    values: String,
}

impl<const N: usize> From<Table<N>> for Values {
    fn from(table: Table<N>) -> Self {
        let digits = words::bits(N) as usize / 4;
        Self { values: table.values.iter().map(|value| format!("{value:0digits$x}")).collect() }
    }
}

impl<const N: usize> TryFrom<Values> for Table<N> {
    type Error = Error;

    fn try_from(Values { values }: Values) -> Result<Self, Error> {
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
}

impl<const N: usize> Table<N> {
    /// A codec with these values, the most frequent first.
    ///
    /// # Errors
    /// [`Error::Parameters`] unless there are 1 to 32768 values, all different, none wider than a word.
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
        Ok(Self { places: Places::new(&values), values, forms })
    }

    /// Finds the table of an allocation from a sample of its entries: its most frequent words, of equally frequent ones
    /// the smaller first. How many follows from one half of the sample, which is coded with the frequent words of the other:
    /// the power of two for which the half's bytes and the table's are fewest.
    pub fn train(sample: &[Entry]) -> Self {
        // A sample of a few runs has no two halves that are alike.
        let step = if sample.len() > 8 * RUN_ENTRIES { 2 } else { 1 };
        let half = |odd: usize| sample.chunks(RUN_ENTRIES).skip(odd).step_by(step).flatten();
        let learned = frequent::<N>(half(0).collect());
        let judged: Vec<Vec<Option<usize>>> = ranks::<N>(&learned, half(step - 1));
        let lens =
            (0..=MOST_VALUES.ilog2()).map(|bits| 1 << bits).take_while(|len| *len < 2 * learned.len().max(1));
        let cost = |&len: &usize| -> usize {
            let forms = Forms::<N>::new(Rest::Word, len.ilog2(), |_| Vec::new());
            let bytes = |ranks: &Vec<Option<usize>>| {
                let number =
                    |rank: Option<usize>| rank.filter(|rank| *rank < len).map_or(ABSENT, |rank| rank as u64);
                SizeClass::from_bits(forms.size(&std::array::from_fn(|i| number(ranks[i])))).bytes()
            };
            judged.iter().map(bytes).sum::<usize>() + len * words::bits(N) as usize / (8 * step)
        };
        let len = lens.min_by_key(cost).unwrap_or(1);
        let mut values = frequent::<N>(sample.iter().collect());
        values.truncate(len);
        values.resize(values.len().max(1), 0);
        Self::new(values).expect("at most 32768 words, each once")
    }

    /// The values; the number of each is its place.
    pub fn values(&self) -> &[u64] {
        &self.values
    }

    pub(super) fn places(&self) -> &Places {
        &self.places
    }

    pub(super) fn forms(&self) -> &Forms<N> {
        &self.forms
    }

    /// The numbers of the entry's words.
    #[inline(always)]
    fn numbers(&self, entry: &Entry) -> [u64; N] {
        self.places.find(&words::split::<N>(entry))
    }
}

/// The words of some entries, the most frequent first; those that come once are left out where there are others.
fn frequent<const N: usize>(entries: Vec<&Entry>) -> Vec<u64> {
    let mut counts: HashMap<u64, u32> = HashMap::new();
    for word in entries.iter().filter(|entry| !is_zero(entry)).flat_map(|entry| words::split::<N>(entry)) {
        *counts.entry(word).or_default() += 1;
    }
    let mut counts: Vec<(u64, u32)> = counts.into_iter().collect();
    counts.sort_unstable_by_key(|&(word, count)| (Reverse(count), word));
    let often = counts.iter().take_while(|(_, count)| *count > 1).count();
    counts.truncate(often.clamp(1, MOST_VALUES));
    counts.into_iter().map(|(word, _)| word).collect()
}

/// The place of every word of entries that are not zero among `values`.
fn ranks<'a, const N: usize>(
    values: &[u64],
    entries: impl Iterator<Item = &'a Entry>,
) -> Vec<Vec<Option<usize>>> {
    let places: HashMap<u64, usize> = values.iter().copied().zip(0..).collect();
    let words = entries.filter(|entry| !is_zero(entry)).map(words::split::<N>);
    words.map(|words| words.iter().map(|word| places.get(word).copied()).collect()).collect()
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
        self.forms.size(&self.numbers(entry))
    }

    #[inline(always)]
    fn encode(&self, entry: &Entry, stream: &mut Stream) {
        self.forms.write(entry, &self.numbers(entry), stream);
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
