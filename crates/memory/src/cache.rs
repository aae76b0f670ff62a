//! A model of the metadata cache that counts hits and misses.
//!
//! Set-associative, sliced, with LRU replacement (the paper's "Compression Metadata and Address
//! Translation"). It stores only line addresses and takes byte offsets in a metadata region.

use serde::{Deserialize, Serialize};

use crate::{Error, sync::Mutex};

/// Hash from line to slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hashing {
    /// Line address modulo the number of slices.
    Modulo,
    /// XOR-fold of the line address, which also spreads strides of many lines.
    Xor,
}

/// Geometry of a metadata cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheSpec {
    /// Bytes of all slices together.
    pub bytes: u64,
    /// Associativity.
    pub ways: u64,
    /// Bytes per line; 32 cover 64 entries.
    pub line_bytes: u64,
    /// Number of slices, a power of two.
    pub slices: u64,
    /// Hash from line to slice.
    pub hashing: Hashing,
}

impl CacheSpec {
    /// Returns the cache of the paper's text: 64 KB in 8 slices, 4 ways, 32-byte lines.
    pub const fn paper_text() -> Self {
        Self { bytes: 64 << 10, ways: 4, line_bytes: 32, slices: 8, hashing: Hashing::Xor }
    }

    /// Returns the cache of the paper's evaluation table: 4 KB per L2 slice (32), 4 ways, 128-byte
    /// lines.
    pub const fn paper_table() -> Self {
        Self { bytes: 128 << 10, ways: 4, line_bytes: 128, slices: 32, hashing: Hashing::Xor }
    }

    /// Returns the sets per slice.
    fn sets(&self) -> u64 {
        self.bytes / (self.slices * self.line_bytes * self.ways)
    }

    /// Checks every field.
    ///
    /// # Errors
    /// [`Error::Spec`] that names the first invalid field.
    pub fn validate(&self) -> Result<(), Error> {
        let fail = |field, what| Err(Error::Spec { field, what });
        if !self.line_bytes.is_power_of_two() || self.line_bytes < 32 {
            let line = self.line_bytes;
            return fail("metadata_cache.line_bytes", format!("{line} is not a power of two from 32 up"));
        }
        if !self.slices.is_power_of_two() || self.slices > 1 << 16 {
            let slices = self.slices;
            return fail("metadata_cache.slices", format!("{slices} is not a power of two to 65536"));
        }
        if !(1..=1 << 10).contains(&self.ways) {
            return fail("metadata_cache.ways", format!("{} is not from 1 to 1024", self.ways));
        }
        let row = u128::from(self.slices) * u128::from(self.line_bytes) * u128::from(self.ways);
        if self.bytes == 0 || !u128::from(self.bytes).is_multiple_of(row) || self.bytes > 1 << 32 {
            let bytes = self.bytes;
            return fail("metadata_cache.bytes", format!("{bytes} is not a multiple of {row}, to 4 GiB"));
        }
        Ok(())
    }
}

/// Result of some accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Accesses that hit.
    pub hits: u64,
    /// Accesses that missed.
    pub misses: u64,
    /// Dirty lines written back on eviction.
    pub write_backs: u64,
}

/// A metadata cache, safe to share between threads: each slice has its own lock.
#[derive(Debug)]
pub struct MetadataCache {
    spec: CacheSpec,
    slices: Box<[Mutex<Slice>]>,
}

/// Lines of one slice by set, most recently used first.
#[derive(Debug, Default)]
struct Slice {
    sets: Vec<Vec<Resident>>,
}

#[derive(Debug, Clone, Copy)]
struct Resident {
    line: u64,
    changed: bool,
}

impl MetadataCache {
    /// Creates an empty cache.
    ///
    /// # Errors
    /// [`Error::Spec`] if the spec is invalid.
    pub fn new(spec: CacheSpec) -> Result<Self, Error> {
        spec.validate()?;
        let set = || Vec::with_capacity(spec.ways as usize);
        let slice = || Slice { sets: (0..spec.sets()).map(|_| set()).collect() };
        Ok(Self { spec, slices: (0..spec.slices).map(|_| Mutex::new(slice())).collect() })
    }

    /// Returns the geometry.
    pub fn spec(&self) -> &CacheSpec {
        &self.spec
    }

    /// Models `count` consecutive accesses to the line of byte `byte`; `write` if one of them
    /// modifies it. Only the first can miss.
    pub fn access(&self, byte: u64, count: u64, write: bool) -> Outcome {
        if count == 0 {
            return Outcome::default();
        }
        let line = byte / self.spec.line_bytes;
        let set = line / self.spec.slices % self.spec.sets();
        let mut slice = self.slices[self.slice_of(line)].lock().expect("a slice's lock is never poisoned");
        let first = touch(&mut slice.sets[set as usize], self.spec.ways as usize, line, write);
        Outcome { hits: first.hits + count - 1, ..first }
    }

    fn slice_of(&self, line: u64) -> usize {
        let (slices, bits) = (self.spec.slices, self.spec.slices.trailing_zeros());
        let folded = match self.spec.hashing {
            Hashing::Modulo => line,
            Hashing::Xor if bits == 0 => 0,
            Hashing::Xor => (0..64).step_by(bits as usize).fold(0, |fold, shift| fold ^ line >> shift),
        };
        (folded % slices) as usize
    }
}

/// Accesses `line` in its set.
fn touch(set: &mut Vec<Resident>, ways: usize, line: u64, write: bool) -> Outcome {
    if let Some(way) = set.iter().position(|resident| resident.line == line) {
        set[..=way].rotate_right(1);
        set[0].changed |= write;
        return Outcome { hits: 1, ..Outcome::default() };
    }
    let evicted = if set.len() == ways { set.pop() } else { None };
    set.insert(0, Resident { line, changed: write });
    Outcome { misses: 1, write_backs: evicted.is_some_and(|old| old.changed).into(), hits: 0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TINY: CacheSpec =
        CacheSpec { bytes: 128, ways: 2, line_bytes: 32, slices: 1, hashing: Hashing::Modulo };

    fn hits(cache: &MetadataCache, lines: &[u64]) -> Vec<u64> {
        lines.iter().map(|line| cache.access(line * cache.spec.line_bytes, 1, false).hits).collect()
    }

    #[test]
    fn the_least_recently_used_line_of_a_set_is_evicted() {
        // Two sets of two ways: even lines map to set 0.
        let cache = MetadataCache::new(TINY).unwrap();
        assert_eq!(hits(&cache, &[0, 2, 0, 4, 0, 2, 1, 3, 1]), [0, 0, 1, 0, 1, 0, 0, 0, 1]);
    }

    #[test]
    fn a_changed_line_is_written_back_once() {
        let cache = MetadataCache::new(TINY).unwrap();
        cache.access(0, 3, true);
        let back = |line: u64| cache.access(line * 32, 1, false).write_backs;
        assert_eq!([back(2), back(4), back(0), back(2), back(4)], [0, 1, 0, 0, 0]);
    }

    #[test]
    fn both_paper_caches_have_their_stated_capacity() {
        for (spec, sets) in [(CacheSpec::paper_text(), 64), (CacheSpec::paper_table(), 8)] {
            let cache = MetadataCache::new(spec).unwrap();
            assert_eq!(spec.sets(), sets);
            let lines: Vec<u64> = (0..spec.bytes / spec.line_bytes).collect();
            assert_eq!(hits(&cache, &lines).iter().sum::<u64>(), 0);
            assert_eq!(hits(&cache, &lines).iter().sum::<u64>(), lines.len() as u64);
        }
    }

    #[test]
    fn xor_hashing_spreads_strides_that_modulo_does_not() {
        let slices = |hashing| {
            let cache = MetadataCache::new(CacheSpec { hashing, ..CacheSpec::paper_text() }).unwrap();
            let used: std::collections::BTreeSet<_> = (0..64).map(|i| cache.slice_of(i * 8)).collect();
            used.len()
        };
        assert_eq!((slices(Hashing::Modulo), slices(Hashing::Xor)), (1, 8));
    }

    proptest! {
        #[test]
            fn counted_accesses_equal_single_accesses(
            accesses in proptest::collection::vec((0u64..4096, 0u64..70, any::<bool>()), 1..200),
        ) {
            let spec = CacheSpec { bytes: 1024, slices: 4, ..CacheSpec::paper_text() };
            let (batch, single) = (MetadataCache::new(spec).unwrap(), MetadataCache::new(spec).unwrap());
            for (byte, count, write) in accesses {
                let mut sum = Outcome::default();
                for _ in 0..count {
                    let one = single.access(byte, 1, write);
                    prop_assert_eq!(one.hits + one.misses, 1);
                    sum.hits += one.hits;
                    sum.misses += one.misses;
                    sum.write_backs += one.write_backs;
                }
                prop_assert_eq!(batch.access(byte, count, write), sum);
            }
        }
    }
}
