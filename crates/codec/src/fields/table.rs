//! Words as their places in a table of frequent values (`docs/format.md`, "table32, table64").

use std::{
    cmp::Reverse,
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use buddy_core::{Entry, Layout, SizeClass, is_zero};
use serde::{Deserialize, Serialize};

use super::{
    forms::{ABSENT, Content, Forms, MAX_BITS, Rest},
    index::Index,
    words,
};
use crate::{
    EntryCodec, Error, Stream,
    codec::only_a,
    simd::{Lengths, Word},
};

/// The most values of a table: what 15 bits number, the widest field of two sectors.
pub(super) const MOST_VALUES: usize = 1 << 15;
/// Entries of a sample that are judged together: they lie side by side in memory.
const RUN_ENTRIES: usize = 8;

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

    /// Finds the table of an allocation from a sample of its entries: its most frequent words, of equally frequent ones
    /// the smaller first. How many follows from one half of the sample, which is coded with the frequent words of the other:
    /// the power of two for which the half's bytes and the table's are fewest.
    pub fn train(sample: &[Entry]) -> Self {
        let halves = Halves::of(sample);
        let mut counts = Counts::default();
        counts.add::<N>(halves.half(0));
        let learned = counts.frequent();
        let judged: Vec<[u64; N]> = ranks(&learned, halves.other());
        let lens =
            (0..=MOST_VALUES.ilog2()).map(|bits| 1 << bits).take_while(|len| *len < 2 * learned.len().max(1));
        let cost = |&len: &usize| -> usize {
            let forms = Forms::<N>::new(Rest::Word, len.ilog2(), |_| Vec::new());
            let bytes = |ranks: &[u64; N]| {
                let numbers = ranks.map(|rank| if rank < len as u64 { rank } else { ABSENT });
                SizeClass::from_bits(forms.size(&numbers)).bytes()
            };
            judged.iter().map(bytes).sum::<usize>() + len * words::bits(N) as usize / (8 * halves.step)
        };
        let len = lens.min_by_key(cost).unwrap_or(1);
        if halves.step > 1 {
            counts.add::<N>(halves.half(1));
        }
        let mut values = counts.frequent();
        values.truncate(len);
        Self::of_first(values)
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

/// A sample as two halves, entries that lie side by side together: what one teaches is judged by the other. A sample of a few runs has
/// no two halves that are alike, and is both.
pub(super) struct Halves<'a> {
    sample: &'a [Entry],
    step: usize,
}

impl<'a> Halves<'a> {
    pub(super) fn of(sample: &'a [Entry]) -> Self {
        Self { sample, step: if sample.len() > 8 * RUN_ENTRIES { 2 } else { 1 } }
    }

    pub(super) fn half(&self, odd: usize) -> impl Iterator<Item = &'a Entry> {
        self.sample.chunks(RUN_ENTRIES).skip(odd).step_by(self.step).flatten()
    }

    /// The half that judges.
    pub(super) fn other(&self) -> impl Iterator<Item = &'a Entry> {
        self.half(self.step - 1)
    }

    /// How many parts there are.
    pub(super) fn step(&self) -> usize {
        self.step
    }
}

/// Words as keys, mixed by one product: counting takes 2.4 to 15 ns a word of 100 to 32768 different ones, for 10 to 25 with the
/// standard hash.
#[derive(Debug, Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(self.0 << 8 | u64::from(byte)));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = Word::hash(word, 0x9e37_79b9_7f4a_7c15);
    }
}

type WordMap<V> = HashMap<u64, V, BuildHasherDefault<Mixed>>;

/// How often each word comes.
#[derive(Debug, Default)]
pub(super) struct Counts(WordMap<u32>);

impl Counts {
    /// Counts the words of entries that are not zero.
    pub(super) fn add<'a, const N: usize>(&mut self, entries: impl Iterator<Item = &'a Entry>) {
        for word in entries.filter(|entry| !is_zero(entry)).flat_map(words::split::<N>) {
            *self.0.entry(word).or_default() += 1;
        }
    }

    /// The words, the most frequent first; those that come once are left out where there are others.
    pub(super) fn frequent(&self) -> Vec<u64> {
        let all = || self.0.iter().map(|(&word, &count)| (Reverse(count), word));
        let mut often: Vec<(Reverse<u32>, u64)> = all().filter(|(count, _)| count.0 > 1).collect();
        if often.is_empty() {
            often.extend(all().min());
        }
        often.sort_unstable();
        often.truncate(MOST_VALUES);
        often.into_iter().map(|(_, word)| word).collect()
    }
}

/// The place of every word of entries that are not zero among `values`, or [`ABSENT`].
pub(super) fn ranks<'a, const N: usize>(
    values: &[u64],
    entries: impl Iterator<Item = &'a Entry>,
) -> Vec<[u64; N]> {
    let places: WordMap<u64> = values.iter().copied().zip(0..).collect();
    let words = entries.filter(|entry| !is_zero(entry)).map(words::split::<N>);
    words.map(|words| words.map(|word| places.get(&word).copied().unwrap_or(ABSENT))).collect()
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
