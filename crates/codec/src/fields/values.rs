//! The frequent values of a sample: which words a table has, and how many.

use std::{
    cmp::Reverse,
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use buddy_core::{Entry, is_zero};

use super::{forms::ABSENT, words};
use crate::simd::Word;

/// The most values of a table: what 15 bits number, the widest field of two sectors.
pub(super) const MOST_VALUES: usize = 1 << 15;
/// Entries of a sample that are judged together: they lie side by side in memory.
const RUN_ENTRIES: usize = 8;

/// The most frequent words of a sample, of equally frequent ones the smaller first, and the way to code them. How many, and which of the
/// `ways`, follows from one half of the sample, which is coded with the frequent words of the other: the power of two and the way for
/// which the half's bytes and the table's are fewest. `bytes` has those of places, with a table of the first so many values.
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
    let lens = (0..=MOST_VALUES.ilog2()).map(|bits| 1 << bits);
    let lens = lens.take_while(|len| *len < 2 * learned.len().max(1));
    let all = lens.flat_map(|len: usize| ways.iter().map(move |&way| (len, way)));
    let cost = |&(len, way): &(usize, Way)| {
        bytes(&judged, len, way) + len * words::bits(N) as usize / (8 * halves.step)
    };
    let (len, way) = all.min_by_key(cost).expect("a table has one value at least");
    if halves.step > 1 {
        counts.add::<N>(halves.other());
    }
    let mut values = counts.frequent();
    values.truncate(len);
    (values, way)
}

/// A sample as two halves, entries that lie side by side together: what one teaches is judged by the other. A sample of a few runs has
/// no two halves that are alike, and is both.
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

    /// The half that judges.
    fn other(&self) -> impl Iterator<Item = &'a Entry> {
        self.half(self.step - 1)
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
struct Counts(WordMap<u32>);

impl Counts {
    /// Counts the words of entries that are not zero.
    fn add<'a, const N: usize>(&mut self, entries: impl Iterator<Item = &'a Entry>) {
        for word in entries.filter(|entry| !is_zero(entry)).flat_map(words::split::<N>) {
            *self.0.entry(word).or_default() += 1;
        }
    }

    /// The words, the most frequent first; those that come once are left out where there are others.
    fn frequent(&self) -> Vec<u64> {
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
