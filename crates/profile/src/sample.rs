//! Samples entries of an array.

use buddy_core::{ENTRY_BYTES, Entry, as_entries, last_entry};

use crate::Memory;

/// Entries of a sampled run. Neighbouring entries are similar, so runs are short and many.
pub(crate) const RUN_ENTRIES: usize = 8;
const RUNS: usize = 512;

/// Samples about 4096 entries: all of a small array, otherwise a short run from each of 512 equal
/// segments.
///
/// The offset varies between segments, so that periodic data are sampled fairly. Deterministic.
pub fn sample(array: &impl Memory) -> Vec<Entry> {
    sample_runs(array, RUNS, 0)
}

/// Samples `runs` runs, at other offsets for every `seed`.
pub(crate) fn sample_runs(array: &impl Memory, runs: usize, seed: u64) -> Vec<Entry> {
    let (entries, tail) = as_entries(array.bytes());
    if entries.len() <= runs * RUN_ENTRIES {
        return entries.iter().copied().chain(last_entry(tail)).collect();
    }
    let mut sample = Vec::with_capacity(runs * RUN_ENTRIES);
    for index in 0..runs {
        let start = entries.len() * index / runs;
        let spare = entries.len() * (index + 1) / runs - start - RUN_ENTRIES;
        let start = start + (mix(index as u64 + (seed << 32)) % (spare as u64 + 1)) as usize;
        sample.extend_from_slice(&entries[start..start + RUN_ENTRIES]);
        // One access may map in megabytes of a large file, so each run is released at once.
        array.release(start * ENTRY_BYTES..(start + RUN_ENTRIES) * ENTRY_BYTES);
    }
    sample
}

/// Hashes an index (the finaliser of splitmix64).
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

    /// Returns an array whose entries hold their own index.
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

    /// With a fixed step, a sample would see all or none of a periodic set of entries.
    #[test]
    fn periodic_data_are_sampled_at_many_phases() {
        let phases: std::collections::HashSet<u32> =
            numbers(512 * 64).iter().step_by(8).map(|n| n % 64).collect();
        assert!(phases.len() > 40, "{} phases", phases.len());
    }

    #[test]
    fn another_seed_samples_other_entries() {
        let array = numbered(100_000);
        let [first, other] = [0, 1].map(|seed| sample_runs(&array, RUNS, seed));
        let known: std::collections::HashSet<Entry> = first.iter().copied().collect();
        let again = other.iter().filter(|entry| known.contains(*entry)).count();
        assert!(again < 600, "{again} of 4096 entries are in both");
        assert_eq!(other.len(), 4096);
    }
}
