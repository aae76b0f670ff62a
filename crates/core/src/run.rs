//! A run of a program: its allocations, when its memory was looked at, and what was seen.
//!
//! [`RunInfo`] is the `run.json` of a directory of snapshots. [`RunRecord`] is the same run without its bytes:
//! sizes and page maps, which is all that profiles and pictures need. `docs/reference/snapshots.md` describes both.

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Blocks, Dtype, ENTRY_BYTES, Histogram, PageMap, RecordKind};

/// The version of `run.json` that this library reads and writes.
pub const RUN_VERSION: u32 = 1;

/// What is known of a run, besides the contents of its memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunInfo {
    /// [`RUN_VERSION`], or the run is refused.
    pub version: u32,
    /// The program that ran.
    pub program: String,
    /// What it was given: sizes, seed, model, batch.
    #[serde(default)]
    pub parameters: Map<String, Value>,
    /// Its allocations, in address order where addresses are known.
    pub allocations: Vec<AllocationInfo>,
    /// When its memory was looked at, in the order of time.
    pub snapshots: Vec<SnapshotInfo>,
}

/// One allocation. It keeps its length for as long as it lives, which in a directory of snapshots is the whole run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllocationInfo {
    /// Its name, unique in the run.
    pub name: String,
    /// Where the program allocates it; allocations of one loop share it.
    #[serde(default)]
    pub call_site: String,
    /// Its address, or 0 where nothing depends on it.
    #[serde(default)]
    pub base: u64,
    /// Its length in bytes, a whole number of elements.
    pub bytes: u64,
    /// Type of its elements.
    pub dtype: Dtype,
}

/// One look at the memory of a run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotInfo {
    /// The program's own count of time: time steps, iterations, batches.
    pub step: u64,
    /// What the program was doing, where that helps a reader.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// The file in the run's directory that holds the bytes; none in a record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

/// A run without its bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRecord {
    /// The program, its allocations and its snapshots.
    pub run: RunInfo,
    /// What was seen: for each snapshot, for each allocation, in the order of `run`.
    pub sizes: Vec<Vec<AllocationSizes>>,
}

/// The sizes of one allocation in one snapshot; without histograms it is not alive there.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllocationSizes {
    /// Entries by size class, by the codec's name.
    pub histograms: BTreeMap<String, Histogram>,
    /// Sampled pages, by the codec's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pages: BTreeMap<String, PageMap>,
    /// All pages, block by block, by the codec's name: what targets by page are chosen from.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub blocks: BTreeMap<String, Blocks>,
    /// Bytes that codecs keep of it beside its entries, such as a table, by the codec's name; none where there are none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameter_bytes: BTreeMap<String, u64>,
}

impl RecordKind for RunRecord {
    const KIND: &'static str = "run";
    const VERSION: u32 = 1;

    fn check(&self) -> Result<(), String> {
        self.validate().map_err(|error| error.to_string())
    }
}

/// Why a run is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// Written by another version.
    #[error("the run has version {0}; this tool reads version {RUN_VERSION}")]
    Version(u32),
    /// No allocations, or no snapshots.
    #[error("the run has no {0}")]
    Empty(&'static str),
    /// A name that two allocations have.
    #[error("two allocations are named {0:?}")]
    Duplicate(String),
    /// A length that is no whole number of elements, or that runs past the end of memory.
    #[error("allocation {name:?} has {bytes} bytes from {base:#x}, which no array of {dtype} can")]
    Length {
        /// Name of the allocation.
        name: String,
        /// Address of its first byte.
        base: u64,
        /// Its length in bytes.
        bytes: u64,
        /// The type whose size does not divide them.
        dtype: Dtype,
    },
    /// Allocations whose bytes together cannot be counted.
    #[error("the allocations have more than 2^63 bytes in all snapshots together, which no memory has")]
    Total,
    /// A record whose tables have another shape than its run.
    #[error("the record has {found} {what}, but its run has {expected}")]
    Shape {
        /// What there are too many or too few of.
        what: &'static str,
        /// How many the run has.
        expected: usize,
        /// How many were found.
        found: usize,
    },
    /// A histogram or a page map that its allocation cannot have.
    #[error(
        "snapshot {snapshot}, allocation {name:?}, codec {codec:?}: the sizes are not of its {entries} entries: {why}"
    )]
    Sizes {
        /// Index of the snapshot.
        snapshot: usize,
        /// Name of the allocation.
        name: String,
        /// Name of the codec.
        codec: String,
        /// Entries of the allocation.
        entries: u64,
        /// What contradicts what.
        why: &'static str,
    },
}

impl AllocationInfo {
    /// How many entries it has, the last one padded.
    pub fn entries(&self) -> u64 {
        self.bytes.div_ceil(ENTRY_BYTES as u64)
    }

    fn validate(&self) -> Result<(), RunError> {
        let whole = self.bytes.is_multiple_of(self.dtype.bytes() as u64);
        if whole && self.base.checked_add(self.bytes).is_some() {
            return Ok(());
        }
        let Self { name, base, bytes, dtype, .. } = self.clone();
        Err(RunError::Length { name, base, bytes, dtype })
    }
}

impl RunInfo {
    /// A run that has not been looked at yet.
    pub fn new(program: &str, parameters: Map<String, Value>, allocations: Vec<AllocationInfo>) -> Self {
        let program = program.to_owned();
        Self { version: RUN_VERSION, program, parameters, allocations, snapshots: Vec::new() }
    }

    /// Gives allocations addresses as a simple allocator would: one after the other in 512-byte steps. For
    /// programs whose real addresses change from run to run.
    pub fn place_allocations(&mut self) {
        let mut base = 0x7f00_0000_0000;
        for allocation in &mut self.allocations {
            allocation.base = base;
            base += allocation.bytes.next_multiple_of(512);
        }
    }

    /// Bytes of all allocations.
    pub fn bytes(&self) -> u64 {
        self.allocations.iter().map(|allocation| allocation.bytes).fold(0, u64::saturating_add)
    }

    /// Checks what the types cannot: the version, that names are unique and lengths possible.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn validate(&self) -> Result<(), RunError> {
        if self.version != RUN_VERSION {
            return Err(RunError::Version(self.version));
        }
        if self.allocations.is_empty() {
            return Err(RunError::Empty("allocations"));
        }
        let mut names = HashSet::new();
        for allocation in &self.allocations {
            allocation.validate()?;
            if !names.insert(allocation.name.as_str()) {
                return Err(RunError::Duplicate(allocation.name.clone()));
            }
        }
        if self.bytes().saturating_mul(self.snapshots.len() as u64) > 1 << 63 {
            return Err(RunError::Total);
        }
        if self.snapshots.is_empty() { Err(RunError::Empty("snapshots")) } else { Ok(()) }
    }
}

impl RunRecord {
    /// Checks the run, and that every histogram counts the entries of its allocation.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn validate(&self) -> Result<(), RunError> {
        self.run.validate()?;
        same_length("snapshots", self.run.snapshots.len(), self.sizes.len())?;
        for (snapshot, sizes) in self.sizes.iter().enumerate() {
            same_length("allocations in a snapshot", self.run.allocations.len(), sizes.len())?;
            for (allocation, sizes) in self.run.allocations.iter().zip(sizes) {
                sizes.validate(snapshot, allocation)?;
            }
        }
        Ok(())
    }
}

impl AllocationSizes {
    fn validate(&self, snapshot: usize, allocation: &AllocationInfo) -> Result<(), RunError> {
        let entries = allocation.entries();
        let wrong = |codec: &str, why| RunError::Sizes {
            snapshot,
            name: allocation.name.clone(),
            codec: codec.to_owned(),
            entries,
            why,
        };
        for (codec, histogram) in &self.histograms {
            if !histogram.fits(entries) {
                return Err(wrong(codec, "the classes or the bytes do not add up"));
            }
        }
        for (codec, map) in &self.pages {
            if !map.fits(entries) {
                return Err(wrong(codec, "the page map has rows of other lengths"));
            }
            if self.histograms.get(codec).is_some_and(|histogram| !histogram.allows(map)) {
                return Err(wrong(codec, "the page map shows classes that the histogram does not count"));
            }
        }
        for (codec, blocks) in &self.blocks {
            let counts = |histogram: &Histogram| {
                histogram.classes == blocks.histogram(0..blocks.counts().len()).classes
            };
            if !blocks.fits(entries) || !self.histograms.get(codec).is_none_or(counts) {
                return Err(wrong(codec, "the blocks are not those of the histogram"));
            }
        }
        Ok(())
    }
}

fn same_length(what: &'static str, expected: usize, found: usize) -> Result<(), RunError> {
    if expected == found { Ok(()) } else { Err(RunError::Shape { what, expected, found }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Record;

    fn allocation(name: &str, bytes: u64, dtype: Dtype) -> AllocationInfo {
        AllocationInfo { name: name.to_owned(), call_site: "main".to_owned(), base: 0, bytes, dtype }
    }

    fn record() -> RunRecord {
        let allocations = vec![allocation("x", 300, Dtype::F32), allocation("y", 128, Dtype::U8)];
        let mut run = RunInfo::new("demo", Map::new(), allocations);
        run.snapshots.push(SnapshotInfo { step: 7, label: String::new(), file: None });
        let sizes = |classes, optimistic_bytes| {
            let histogram = Histogram { classes, optimistic_bytes };
            AllocationSizes { histograms: [("bpc".to_owned(), histogram)].into(), ..Default::default() }
        };
        RunRecord { run, sizes: vec![vec![sizes([1, 0, 2, 0, 0, 0], 48), sizes([0, 0, 0, 0, 0, 1], 128)]] }
    }

    #[test]
    fn a_record_survives_json() {
        let record = Record::new(record());
        record.data.validate().unwrap();
        assert_eq!(Record::from_json(&record.to_json()).unwrap(), record);
    }

    #[test]
    fn addresses_do_not_overlap() {
        let mut run = record().run;
        run.place_allocations();
        assert_eq!(run.allocations[1].base - run.allocations[0].base, 512);
    }

    #[test]
    fn each_defect_is_named() {
        let error = |spoil: fn(&mut RunRecord)| {
            let mut record = record();
            spoil(&mut record);
            record.validate().unwrap_err().to_string()
        };
        assert_eq!(error(|r| r.run.version = 2), "the run has version 2; this tool reads version 1");
        assert_eq!(error(|r| r.run.allocations.clear()), "the run has no allocations");
        assert_eq!(error(|r| r.run.snapshots.clear()), "the run has no snapshots");
        assert_eq!(error(|r| r.run.allocations[1].name = "x".into()), "two allocations are named \"x\"");
        assert!(error(|r| r.run.allocations[0].bytes = 301).contains("301 bytes from 0x0"));
        assert!(
            error(|r| r.run.allocations[0].base = u64::MAX).contains("300 bytes from 0xffffffffffffffff")
        );
        assert_eq!(error(|r| r.sizes.clear()), "the record has 0 snapshots, but its run has 1");
        assert!(error(|r| r.sizes[0].truncate(1)).starts_with("the record has 1 allocations in a snapshot"));
        assert!(
            error(|r| r.sizes[0][0].histograms.get_mut("bpc").unwrap().classes[5] = 9)
                .contains("its 3 entries")
        );
        assert!(
            error(|r| r.sizes[0][0].histograms.get_mut("bpc").unwrap().classes = [u64::MAX; 6])
                .contains("bpc")
        );
        let blocks = |r: &mut RunRecord| {
            r.sizes[0][0].blocks.insert("bpc".to_owned(), Blocks::new(1, vec![[4, 0, 0, 0, 0, 0]]));
        };
        assert!(error(blocks).contains("its 3 entries"));
    }

    #[test]
    fn contradictions_are_refused() {
        let error = |spoil: fn(&mut RunRecord)| {
            let mut record = record();
            spoil(&mut record);
            record.validate().unwrap_err().to_string()
        };
        assert!(
            error(|r| r.sizes[0][1].histograms.get_mut("bpc").unwrap().optimistic_bytes = 1)
                .ends_with("1 entries: the classes or the bytes do not add up")
        );
        let three = |r: &mut RunRecord| {
            let huge = |name: &str| allocation(name, 1 << 63, Dtype::U8);
            r.run.allocations = ["a", "b", "c"].map(huge).into();
        };
        assert!(error(three).starts_with("the allocations have more than 2^63 bytes"));
        let raw = |r: &mut RunRecord| {
            let map = PageMap::new(1, [[crate::SizeClass::Raw; 3]]);
            r.sizes[0][0].pages.insert("bpc".to_owned(), map);
        };
        assert!(error(raw).contains("the page map shows classes"));
    }
}
