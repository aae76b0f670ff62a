//! A few entries that stand for an array.

use buddy_core::{ENTRY_BYTES, Entry, as_entries, last_entry};

use crate::Memory;

/// Neighbouring entries are alike, so a sample is many short runs rather than a few long ones.
pub(crate) const RUN_ENTRIES: usize = 8;
const RUNS: usize = 512;

/// About 4096 entries: all of a small array, otherwise short runs, one from each of 512 equal stretches at a
/// place that changes from stretch to stretch, so that no period of the data can hide. The same array always
/// gives the same sample.
pub fn sample(array: &impl Memory) -> Vec<Entry> {
    sample_runs(array, RUNS, 0)
}

/// [`sample`] with another number of runs, and at other places for every `turn`.
pub(crate) fn sample_runs(array: &impl Memory, runs: usize, turn: u64) -> Vec<Entry> {
    let (entries, tail) = as_entries(array.bytes());
    if entries.len() <= runs * RUN_ENTRIES {
        return entries.iter().copied().chain(last_entry(tail)).collect();
    }
    let mut sample = Vec::with_capacity(runs * RUN_ENTRIES);
    for index in 0..runs {
        let start = entries.len() * index / runs;
        let room = entries.len() * (index + 1) / runs - start - RUN_ENTRIES;
        let start = start + (mix(index as u64 + (turn << 32)) % (room as u64 + 1)) as usize;
        sample.extend_from_slice(&entries[start..start + RUN_ENTRIES]);
        // One touch may map in megabytes of a large file, so each run is handed back at once.
        array.release(start * ENTRY_BYTES..(start + RUN_ENTRIES) * ENTRY_BYTES);
    }
    sample
}

/// A well mixed number for a place (the finaliser of splitmix64).
fn mix(index: u64) -> u64 {
    let mut z = (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use buddy_core::Dtype;
    use buddy_snapshot::Array;

    use super::*;

    /// An array whose entries hold their own number.
    fn numbered(entries: u32) -> Array {
        let bytes = (0..entries).flat_map(|i| i.to_le_bytes().repeat(ENTRY_BYTES / 4)).collect();
        Array::from_memory("numbered", Dtype::U32, bytes).unwrap()
    }

    fn numbers(entries: u32) -> Vec<u32> {
        let number = |entry: &Entry| u32::from_le_bytes(entry[..4].try_into().unwrap());
        sample(&numbered(entries)).iter().map(number).collect()
    }

    #[test]
    fn a_small_array_is_its_own_sample() {
        assert_eq!(numbers(4096), (0..4096).collect::<Vec<_>>());
        assert!(numbers(0).is_empty());
    }

    #[test]
    fn a_sample_has_no_entry_twice_and_covers_the_array() {
        for entries in [4097, 50_000] {
            let found = numbers(entries);
            assert_eq!(found.len(), 4096);
            assert!(found.windows(2).all(|pair| pair[0] < pair[1]), "in order, none twice");
            let gap = found.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
            assert!(gap <= 2 * entries.div_ceil(512), "a gap of {gap} of {entries}");
        }
    }

    /// Every 8th entry is special; a sample with a fixed step would see all or none of them.
    #[test]
    fn a_period_does_not_hide() {
        let phases: std::collections::HashSet<u32> =
            numbers(512 * 64).iter().step_by(8).map(|n| n % 64).collect();
        assert!(phases.len() > 40, "{} phases", phases.len());
    }

    #[test]
    fn another_turn_looks_elsewhere() {
        let array = numbered(100_000);
        let [first, other] = [0, 1].map(|turn| sample_runs(&array, RUNS, turn));
        let known: std::collections::HashSet<Entry> = first.iter().copied().collect();
        let again = other.iter().filter(|entry| known.contains(*entry)).count();
        assert!(again < 600, "{again} of 4096 entries are in both");
        assert_eq!(other.len(), 4096);
    }
}
