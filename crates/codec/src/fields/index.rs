//! Where a value stands in a table, for a core: a perfect hash whose slots are as wide as the values.
//!
//! A value is turned into its hash, which can be undone. The hash's top bits name a bucket; the bucket's number turns its
//! low bits into the place of a slot that no other value of the table has. The slot need not hold the low bits, as its place
//! says what they were: the value's number stands there. A slot without a value has a number that is too large.

use buddy_core::Entry;

use super::forms::{ABSENT, Forms, MAX_BITS, MOST_EXCEPTIONS};
use crate::simd::{
    Choice, Lengths, Lookup, PADDING, Word, count_above, look_up, look_up_and_choose, look_up_and_sum,
};

/// The numbers of all values of a table, `W` wide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Index<W> {
    multiplier: u64,
    /// For each bucket, what parts the slots of its values from those of all others.
    buckets: Vec<u16>,
    /// What is left of a value's hash, and its number.
    slots: Vec<W>,
}

/// A value while its slot is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Homeless {
    bucket: usize,
    low: usize,
    /// What its slot will hold.
    held: u64,
}

/// Multipliers that are tried before there are twice as many buckets, and how often that is done. Values that chance could have put there are
/// parted by one of the first few; values with a pattern of their own may need more buckets, which know more bits of a hash.
const TRIES: u32 = 8;
const DOUBLINGS: u32 = 4;

impl<W: Word> Index<W> {
    /// The numbers of values, each its place among them; all must differ, and be 32768 at most. None if no multiplier that is tried parts
    /// them: whoever chose the values must not make this take for ever.
    pub(super) fn new(values: &[W]) -> Option<Self> {
        let slots = (2 * values.len()).next_power_of_two().max(64);
        (0..TRIES * (DOUBLINGS + 1)).find_map(|turn| {
            let multiplier = u64::from(turn + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            Self::with(values, multiplier, slots, (slots / 8) << (turn / TRIES).min(DOUBLINGS))
        })
    }

    fn with(values: &[W], multiplier: u64, slots: usize, buckets: usize) -> Option<Self> {
        let low = slots - 1;
        let homeless = |(number, value): (usize, &W)| {
            let hash: u64 = value.hash(multiplier).into();
            let bucket = (hash >> (W::BITS - buckets.ilog2())) as usize;
            Homeless { bucket, low: hash as usize & low, held: hash & !(low as u64) | number as u64 }
        };
        let mut homeless: Vec<Homeless> = values.iter().enumerate().map(homeless).collect();
        homeless.sort_unstable();
        let mut groups: Vec<&[Homeless]> = homeless.chunk_by(|a, b| a.bucket == b.bucket).collect();
        // What is equal in both is parted by no number of a bucket.
        if groups.iter().any(|group| group.windows(2).any(|pair| pair[0].low == pair[1].low)) {
            return None;
        }
        groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
        let (mut numbers, mut held) = (vec![0; buckets + PADDING], vec![None; slots]);
        for group in groups {
            let free = |turn: &usize| group.iter().all(|one| held[one.low ^ turn].is_none());
            let turn = (0..slots).find(free)?;
            numbers[group[0].bucket] = turn as u16;
            group.iter().for_each(|one| held[one.low ^ turn] = Some(one.held));
        }
        // The most that the numbers of values have bits for, and one more.
        let slot = |held: Option<u64>| W::of(held.unwrap_or(slots as u64 / 2));
        Some(Self { multiplier, buckets: numbers, slots: held.into_iter().map(slot).collect() })
    }

    #[inline(always)]
    fn table(&self) -> Lookup<'_, W> {
        Lookup { multiplier: self.multiplier, buckets: &self.buckets, slots: &self.slots }
    }

    /// Above all numbers of values, and what their bits can hold: what is found for other words is not below it.
    #[inline(always)]
    pub(super) fn absent(&self) -> u64 {
        self.slots.len() as u64 / 2
    }

    /// What the numbers that are found take in all.
    #[inline(always)]
    pub(super) fn sum<const N: usize>(&self, entry: &Entry, lengths: &Lengths) -> u32 {
        look_up_and_sum::<W, N>(entry, &self.table(), lengths)
    }

    /// Bits of the stream of an entry.
    #[inline(always)]
    pub(super) fn size<const N: usize>(&self, entry: &Entry, forms: &Forms<N>) -> u32 {
        let first = FirstForm { forms, absent: self.absent() };
        look_up_and_choose::<W, N>(entry, &self.table(), &first)
    }

    /// The numbers of an entry's words, or [`ABSENT`]; none if its stream has [`MAX_BITS`] and that is more than the limit.
    #[inline(always)]
    pub(super) fn numbers<const N: usize>(&self, entry: &Entry, limit: u32) -> Option<[u64; N]> {
        let (found, absent) = (look_up::<W, N>(entry, &self.table()), self.absent());
        let mut numbers = [0; N];
        for i in 0..N {
            let number: u64 = found[i].into();
            numbers[i] = if number < absent { number } else { ABSENT };
        }
        let too_many = limit < MAX_BITS && count_above(&numbers, &[absent; N]) > MOST_EXCEPTIONS;
        (!too_many).then_some(numbers)
    }
}

/// The first form that holds what was found.
struct FirstForm<'a, const N: usize> {
    forms: &'a Forms<N>,
    absent: u64,
}

impl<const N: usize> Choice for FirstForm<'_, N> {
    #[inline(always)]
    fn choose(&self, from: impl Fn(u64) -> u32) -> u32 {
        if from(self.absent) > MOST_EXCEPTIONS {
            return MAX_BITS;
        }
        self.forms.size_by(|largest| from(largest + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{Noise, fill};

    /// Every value has its number; words that differ from one by a bit, and noise, have none.
    fn numbered<W: Word, const N: usize>(values: &[u64]) {
        let index = Index::new(&values.iter().map(|&value| W::of(value)).collect::<Vec<W>>()).unwrap();
        let find = |word: u64| {
            let entry = fill(|_| if N == 32 { word << 32 | word } else { word }.to_le_bytes());
            index.numbers::<N>(&entry, MAX_BITS).unwrap()[9]
        };
        let mut noise = Noise(values.len() as u64);
        let sorted: std::collections::BTreeSet<u64> = values.iter().copied().collect();
        for (number, &value) in values.iter().enumerate() {
            assert_eq!(find(value), number as u64);
            let others = (0..W::BITS).step_by(9).map(|bit| value ^ 1 << bit);
            for other in others.chain([W::of(noise.next()).into()]).filter(|word| !sorted.contains(word)) {
                assert_eq!(find(other), ABSENT, "{other:#x}");
            }
        }
    }

    #[test]
    fn all_values_have_their_numbers_and_nothing_else_has() {
        for len in [1, 2, 63, 64, 65, 1000, 4096] {
            numbered::<u32, 32>(&(0..len).map(|i| i * 64).collect::<Vec<u64>>());
            numbered::<u32, 32>(&(0..len).map(|i| (i as f32).to_bits().into()).collect::<Vec<u64>>());
            numbered::<u64, 16>(&(0..len).map(|i| (i as f64).to_bits()).collect::<Vec<u64>>());
            numbered::<u64, 16>(&(0..len).map(|i| 0x7f00_0000_0000 + i * 4096).collect::<Vec<u64>>());
        }
        numbered::<u32, 32>(&(0..32768).map(|i| 0xffff_ffff - i).collect::<Vec<u64>>());
        numbered::<u64, 16>(&(0..32768).map(|i| (i as f64 / 8.0).to_bits()).collect::<Vec<u64>>());
    }

    /// Equal values are parted by nothing: the search ends without an index.
    #[test]
    fn the_search_for_an_index_ends() {
        assert!(Index::<u32>::new(&[7; 2000]).is_none());
        assert!(Index::<u64>::new(&[7, 8, 7]).is_none());
    }
}
