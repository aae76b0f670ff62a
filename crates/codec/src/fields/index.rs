//! Perfect hash from value to table index for the CPU, with slots as wide as the values.
//!
//! An invertible hash maps a value to a word. Its top bits select a bucket, whose displacement maps
//! the low bits to a slot unique to the value. The slot position implies the low bits, so the slot
//! stores the table index in their place. Empty slots hold an index that is out of range.

use buddy_core::Entry;

use super::forms::{ABSENT, Forms, MAX_BITS, MAX_EXCEPTIONS};
use crate::simd::{
    Choice, Lengths, Lookup, PADDING, Word, count_above, look_up, look_up_and_choose, look_up_and_sum,
};

/// Index of a table's values of type `W`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Index<W> {
    multiplier: u64,
    /// Displacement per bucket.
    buckets: Vec<u16>,
    /// High hash bits of a value with its table index in place of the low bits.
    slots: Vec<W>,
}

/// A value whose slot is not yet assigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Pending {
    bucket: usize,
    low: usize,
    /// Contents of its future slot.
    held: u64,
}

/// Multipliers tried before doubling the buckets, and maximum number of doublings. Random values
/// succeed within a few tries; patterned values may need more buckets, which use more hash bits.
const TRIES: u32 = 8;
const DOUBLINGS: u32 = 4;

impl<W: Word> Index<W> {
    /// Builds the index of distinct values, at most 32768. Returns `None` if the bounded search
    /// fails, as it may for adversarial values.
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
            Pending { bucket, low: hash as usize & low, held: hash & !(low as u64) | number as u64 }
        };
        let mut homeless: Vec<Pending> = values.iter().enumerate().map(homeless).collect();
        homeless.sort_unstable();
        let mut groups: Vec<&[Pending]> = homeless.chunk_by(|a, b| a.bucket == b.bucket).collect();
        // Equal low bits in one bucket cannot be separated by a displacement.
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
        // Half the slots: one more than the largest index that its bits can hold.
        let slot = |held: Option<u64>| W::of(held.unwrap_or(slots as u64 / 2));
        Some(Self { multiplier, buckets: numbers, slots: held.into_iter().map(slot).collect() })
    }

    #[inline(always)]
    fn table(&self) -> Lookup<'_, W> {
        Lookup { multiplier: self.multiplier, buckets: &self.buckets, slots: &self.slots }
    }

    /// Returns the bound on valid indices: lookups of absent words give at least this.
    #[inline(always)]
    pub(super) fn absent(&self) -> u64 {
        self.slots.len() as u64 / 2
    }

    /// Returns the total code bits of an entry's indices.
    #[inline(always)]
    pub(super) fn sum<const N: usize>(&self, entry: &Entry, lengths: &Lengths) -> u32 {
        look_up_and_sum::<W, N>(entry, &self.table(), lengths)
    }

    /// Returns the stream size in bits of an entry.
    #[inline(always)]
    pub(super) fn size<const N: usize>(&self, entry: &Entry, forms: &Forms<N>) -> u32 {
        let first = FirstForm { forms, absent: self.absent() };
        look_up_and_choose::<W, N>(entry, &self.table(), &first)
    }

    /// Returns the indices of an entry's words, or [`ABSENT`]; `None` if the stream exceeds `limit`
    /// for certain.
    #[inline(always)]
    pub(super) fn numbers<const N: usize>(&self, entry: &Entry, limit: u32) -> Option<[u64; N]> {
        let (found, absent) = (look_up::<W, N>(entry, &self.table()), self.absent());
        let mut numbers = [0; N];
        for i in 0..N {
            let number: u64 = found[i].into();
            numbers[i] = if number < absent { number } else { ABSENT };
        }
        let too_many = limit < MAX_BITS && count_above(&numbers, &[absent; N]) > MAX_EXCEPTIONS;
        (!too_many).then_some(numbers)
    }
}

/// Selects the first form that fits the indices found.
struct FirstForm<'a, const N: usize> {
    forms: &'a Forms<N>,
    absent: u64,
}

impl<const N: usize> Choice for FirstForm<'_, N> {
    #[inline(always)]
    fn choose(&self, from: impl Fn(u64) -> u32) -> u32 {
        if from(self.absent) > MAX_EXCEPTIONS {
            return MAX_BITS;
        }
        self.forms.size_by(|largest| from(largest + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{Noise, fill};

    /// Every value has its index; values with a flipped bit, and noise, have none.
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
    fn only_the_values_have_indices() {
        for len in [1, 2, 63, 64, 65, 1000, 4096] {
            numbered::<u32, 32>(&(0..len).map(|i| i * 64).collect::<Vec<u64>>());
            numbered::<u32, 32>(&(0..len).map(|i| (i as f32).to_bits().into()).collect::<Vec<u64>>());
            numbered::<u64, 16>(&(0..len).map(|i| (i as f64).to_bits()).collect::<Vec<u64>>());
            numbered::<u64, 16>(&(0..len).map(|i| 0x7f00_0000_0000 + i * 4096).collect::<Vec<u64>>());
        }
        numbered::<u32, 32>(&(0..32768).map(|i| 0xffff_ffff - i).collect::<Vec<u64>>());
        numbered::<u64, 16>(&(0..32768).map(|i| (i as f64 / 8.0).to_bits()).collect::<Vec<u64>>());
    }

    /// Equal values cannot be separated: the search ends without an index.
    #[test]
    fn the_search_for_an_index_terminates() {
        assert!(Index::<u32>::new(&[7; 2000]).is_none());
        assert!(Index::<u64>::new(&[7, 8, 7]).is_none());
    }
}
