//! Where a value stands in a table, for a GPU: a perfect hash, two loads and no loop for each value (a core has its own, in
//! `index.rs`).
//!
//! A value's hash names a bucket; the bucket's number, mixed into the hash, names a slot that no other value of the
//! table has. The numbers are found when the table is made, the largest buckets first.

use super::forms::ABSENT;

/// The places of all values of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Places {
    seed: u32,
    /// For each bucket, what makes the slots of its values differ from those of all others.
    buckets: Vec<u32>,
    /// Values and their numbers; [`ABSENT`] in a slot that has none.
    slots: Vec<(u64, u64)>,
}

/// Tries of a bucket before all begins again with another seed.
const MOST_TRIES: u32 = 1 << 16;

impl Places {
    /// Where each of the values stands; all must differ, and be 65536 at most.
    pub(super) fn new(values: &[u64]) -> Self {
        let slots = (2 * values.len()).next_power_of_two().max(64);
        let seeds = (0..).map(|round: u32| round.wrapping_mul(0x9e37_79b9) | 1);
        seeds
            .filter_map(|seed| Self::with_seed(values, seed, slots))
            .next()
            .expect("some seed parts all values")
    }

    pub(super) fn seed(&self) -> u32 {
        self.seed
    }

    pub(super) fn buckets(&self) -> &[u32] {
        &self.buckets
    }

    /// The values, each in its slot, with its number.
    pub(super) fn slots(&self) -> &[(u64, u64)] {
        &self.slots
    }

    fn with_seed(values: &[u64], seed: u32, slots: usize) -> Option<Self> {
        let mut found = Self { seed, buckets: vec![0; slots / 8], slots: vec![(0, ABSENT); slots] };
        let mut buckets: Vec<Vec<usize>> = vec![Vec::new(); slots / 8];
        values
            .iter()
            .enumerate()
            .for_each(|(index, &value)| buckets[found.bucket(found.hash(value))].push(index));
        let mut order: Vec<usize> = (0..buckets.len()).collect();
        order.sort_by_key(|&bucket| std::cmp::Reverse(buckets[bucket].len()));
        let mut taken = vec![false; slots];
        for bucket in order {
            let hashes: Vec<u32> = buckets[bucket].iter().map(|&index| found.hash(values[index])).collect();
            let mixed = (0..MOST_TRIES).find(|&mix| found.parts(&hashes, mix, &mut taken))?;
            found.buckets[bucket] = mixed;
            for (&index, &hash) in buckets[bucket].iter().zip(&hashes) {
                let slot = found.slot(hash, mixed);
                found.slots[slot] = (values[index], index as u64);
            }
        }
        Some(found)
    }

    /// Takes the slots of these hashes if all are free.
    fn parts(&self, hashes: &[u32], mix: u32, taken: &mut [bool]) -> bool {
        for (count, &hash) in hashes.iter().enumerate() {
            let slot = self.slot(hash, mix);
            if taken[slot] {
                hashes[..count].iter().for_each(|&hash| taken[self.slot(hash, mix)] = false);
                return false;
            }
            taken[slot] = true;
        }
        true
    }

    #[inline(always)]
    fn hash(&self, value: u64) -> u32 {
        let (low, high) = (value as u32, (value >> 32) as u32);
        let hash = low.wrapping_mul(self.seed)
            ^ high.wrapping_mul(self.seed.wrapping_mul(0x85eb_ca6b)).rotate_left(15);
        (hash ^ hash >> 15).wrapping_mul(0x2c1b_3c6d)
    }

    #[inline(always)]
    fn bucket(&self, hash: u32) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    #[inline(always)]
    fn slot(&self, hash: u32, mix: u32) -> usize {
        ((hash ^ mix).wrapping_mul(0x9e37_79b1) >> 13) as usize & (self.slots.len() - 1)
    }
}
