//! Selection of dictionary values from a sample.

use std::{
    cmp::Reverse,
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use buddy_core::{Entry, is_zero};

use super::{forms::ABSENT, words};
use crate::simd::Word;

/// Largest dictionary: 15-bit indices, the widest field of two sectors.
pub(super) const MAX_VALUES: usize = 1 << 15;
/// Consecutive sample entries that stay in one half, because neighbours are similar.
const RUN_ENTRIES: usize = 8;

/// Returns the most frequent words of a sample, ties by smaller value, and the best coding.
///
/// The number of words, a power of two, and one of the `ways` are chosen by cross-validation: half
/// of the sample is coded with the frequent words of the other half. `bytes` gives the coded size
/// of indices with a dictionary of the given length.
pub(super) fn frequent_values<const N: usize, Way: Copy>(
    sample: &[Entry],
    ways: &[Way],
    bytes: impl Fn(&[[u64; N]], usize, Way) -> usize,
) -> (Vec<u64>, Way) {
    let halves = Halves::of(sample);
    let mut counts = Counts::default();
    counts.add::<N>(halves.half(0));
    let learned = counts.frequent();
    let judged: Vec<[u64; N]> = ranks(&learned, halves.other());
    let lens = (0..=MAX_VALUES.ilog2()).map(|bits| 1 << bits);
    let lens = lens.take_while(|len| *len < 2 * learned.len().max(1));
    let all = lens.flat_map(|len: usize| ways.iter().map(move |&way| (len, way)));
    let cost = |&(len, way): &(usize, Way)| {
        bytes(&judged, len, way) + len * words::bits(N) as usize / (8 * halves.step)
    };
    let (len, way) = all.min_by_key(cost).expect("a table has at least one value");
    if halves.step > 1 {
        counts.add::<N>(halves.other());
    }
    let mut values = counts.frequent();
    values.truncate(len);
    (values, way)
}

/// A sample in two halves, one for training and one for validation; runs of entries stay together.
/// A sample of few runs serves as both.
struct Halves<'a> {
    sample: &'a [Entry],
    step: usize,
}

impl<'a> Halves<'a> {
    fn of(sample: &'a [Entry]) -> Self {
        Self { sample, step: if sample.len() > 8 * RUN_ENTRIES { 2 } else { 1 } }
    }

    fn half(&self, odd: usize) -> impl Iterator<Item = &'a Entry> {
        self.sample.chunks(RUN_ENTRIES).skip(odd).step_by(self.step).flatten()
    }

    /// Returns the validation half.
    fn other(&self) -> impl Iterator<Item = &'a Entry> {
        self.half(self.step - 1)
    }
}

/// Multiplicative hasher for words. Counting takes 2.4 to 15 ns per word with 100 to 32768 distinct
/// ones, against 10 to 25 ns with the standard hasher.
#[derive(Debug, Default)]
struct WordHasher(u64);

impl Hasher for WordHasher {
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

type WordMap<V> = HashMap<u64, V, BuildHasherDefault<WordHasher>>;

/// Word frequencies.
#[derive(Debug, Default)]
struct Counts(WordMap<u32>);

impl Counts {
    /// Counts the words of non-zero entries.
    fn add<'a, const N: usize>(&mut self, entries: impl Iterator<Item = &'a Entry>) {
        for word in entries.filter(|entry| !is_zero(entry)).flat_map(words::split::<N>) {
            *self.0.entry(word).or_default() += 1;
        }
    }

    /// Returns the words, most frequent first; words that occur once are omitted unless there are
    /// no others.
    fn frequent(&self) -> Vec<u64> {
        let all = || self.0.iter().map(|(&word, &count)| (Reverse(count), word));
        let mut often: Vec<(Reverse<u32>, u64)> = all().filter(|(count, _)| count.0 > 1).collect();
        if often.is_empty() {
            often.extend(all().min());
        }
        often.sort_unstable();
        often.truncate(MAX_VALUES);
        often.into_iter().map(|(_, word)| word).collect()
    }
}

/// Returns the index in `values` of every word of non-zero entries, or [`ABSENT`].
pub(super) fn ranks<'a, const N: usize>(
    values: &[u64],
    entries: impl Iterator<Item = &'a Entry>,
) -> Vec<[u64; N]> {
    let places: WordMap<u64> = values.iter().copied().zip(0..).collect();
    let words = entries.filter(|entry| !is_zero(entry)).map(words::split::<N>);
    words.map(|words| words.map(|word| places.get(&word).copied().unwrap_or(ABSENT))).collect()
}
