//! Perfect hash from value to table index for the GPU: two loads and no loop per value. (The CPU
//! uses `index.rs`.)
//!
//! The hash selects a bucket; the bucket's displacement, mixed into the hash, selects a slot unique
//! to the value. Displacements are found at construction, largest buckets first (CHD).

use super::forms::ABSENT;

/// Perfect hash of all values of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PerfectHash {
    seed: u32,
    /// Displacement per bucket.
    buckets: Vec<u32>,
    /// Values and their indices; [`ABSENT`] in an empty slot.
    slots: Vec<(u64, u64)>,
}

/// Displacements tried per bucket before restarting with another seed.
const MAX_TRIES: u32 = 1 << 16;

impl PerfectHash {
    /// Builds the hash of distinct values, at most 65536.
    pub(super) fn new(values: &[u64]) -> Self {
        let slots = (2 * values.len()).next_power_of_two().max(64);
        let seeds = (0..).map(|round: u32| round.wrapping_mul(0x9e37_79b9) | 1);
        seeds
            .filter_map(|seed| Self::with_seed(values, seed, slots))
            .next()
            .expect("some seed gives a perfect hash")
    }

    pub(super) fn seed(&self) -> u32 {
        self.seed
    }

    pub(super) fn buckets(&self) -> &[u32] {
        &self.buckets
    }

    /// Returns the values in slot order, with their indices.
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
            let mixed = (0..MAX_TRIES).find(|&mix| found.claim(&hashes, mix, &mut taken))?;
            found.buckets[bucket] = mixed;
            for (&index, &hash) in buckets[bucket].iter().zip(&hashes) {
                let slot = found.slot(hash, mixed);
                found.slots[slot] = (values[index], index as u64);
            }
        }
        Some(found)
    }

    /// Claims the slots of these hashes if all are free.
    fn claim(&self, hashes: &[u32], mix: u32, taken: &mut [bool]) -> bool {
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
