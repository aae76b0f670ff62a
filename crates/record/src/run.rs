//! A run of a program: its allocations, its snapshots and their measured sizes.
//!
//! [`RunInfo`] is the `run.json` of a snapshot directory. [`RunRecord`] is the same run without its
//! data, with sizes and page maps instead. `docs/reference/snapshots.md` describes both.

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{RecordKind, Skipped};
use buddy_core::{Blocks, Dtype, ENTRY_BYTES, Histogram, PageMap};

/// Version of `run.json` that this library reads and writes.
pub const RUN_VERSION: u32 = 1;

/// Description of a run, without the memory contents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunInfo {
    /// Must be [`RUN_VERSION`].
    pub version: u32,
    /// Name of the program.
    pub program: String,
    /// Program parameters: sizes, seed, model, batch.
    #[serde(default)]
    pub parameters: Map<String, Value>,
    /// Allocations, in address order if addresses are known.
    pub allocations: Vec<AllocationInfo>,
    /// Snapshots in time order.
    pub snapshots: Vec<SnapshotInfo>,
    /// Datasets, fields, files and steps that were skipped; only in records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
}

/// One allocation. Its length is fixed for its lifetime, which in a snapshot directory is the whole
/// run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllocationInfo {
    /// Name, unique in the run.
    pub name: String,
    /// Call site of the allocation; allocations of one loop share it.
    #[serde(default)]
    pub call_site: String,
    /// Base address, or 0 if unknown.
    #[serde(default)]
    pub base: u64,
    /// Length in bytes, a whole number of elements.
    pub bytes: u64,
    /// Element type.
    pub dtype: Dtype,
}

/// One snapshot of a run's memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotInfo {
    /// Time in the program's own unit: time steps, iterations, batches.
    pub step: u64,
    /// Activity of the program at this point; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// File in the run directory that holds the data; `None` in a record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

/// A run without its data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRecord {
    /// The program, its allocations and its snapshots.
    pub run: RunInfo,
    /// Sizes per snapshot and allocation, in the order of `run`.
    pub sizes: Vec<Vec<AllocationSizes>>,
}

/// Sizes of one allocation in one snapshot; empty if it is not alive.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllocationSizes {
    /// Entries by size class, keyed by codec.
    pub histograms: BTreeMap<String, Histogram>,
    /// Sampled pages, keyed by codec.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pages: BTreeMap<String, PageMap>,
    /// Counts of all pages by block, keyed by codec: the input of per-page targets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub blocks: BTreeMap<String, Blocks>,
    /// Bytes of codec parameters outside the entries, such as a table, keyed by codec. Codecs
    /// without parameters are omitted.
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

/// Errors of validating a run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// An unsupported version.
    #[error("the run has version {0}; this tool reads version {RUN_VERSION}")]
    Version(u32),
    /// No allocations, or no snapshots.
    #[error("the run has no {0}")]
    Empty(&'static str),
    /// A duplicate allocation name.
    #[error("two allocations are named {0:?}")]
    Duplicate(String),
    /// A length that is not a whole number of elements, or that exceeds the address space.
    #[error(
        "allocation {name:?} has {bytes} bytes from {base:#x}, which is impossible for an array of {dtype}"
    )]
    Length {
        /// Name of the allocation.
        name: String,
        /// Address of its first byte.
        base: u64,
        /// Its length in bytes.
        bytes: u64,
        /// Element type.
        dtype: Dtype,
    },
    /// A total size over 2^63 bytes.
    #[error("the allocations of all snapshots exceed 2^63 bytes in total")]
    Total,
    /// A record whose tables do not match the shape of its run.
    #[error("the record has {found} {what}, but its run has {expected}")]
    Shape {
        /// The mismatched dimension.
        what: &'static str,
        /// Count in the run.
        expected: usize,
        /// Count in the record.
        found: usize,
    },
    /// A histogram or page map that does not match its allocation.
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
        /// The contradiction.
        why: &'static str,
    },
}

impl AllocationInfo {
    /// Returns the number of entries, the last one padded.
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
    /// Creates a run without snapshots.
    pub fn new(program: &str, parameters: Map<String, Value>, allocations: Vec<AllocationInfo>) -> Self {
        let program = program.to_owned();
        Self {
            version: RUN_VERSION,
            program,
            parameters,
            allocations,
            snapshots: Vec::new(),
            skipped: Vec::new(),
        }
    }

    /// Assigns addresses in sequence, aligned to 512 bytes. For programs whose real addresses vary
    /// from run to run.
    pub fn place_allocations(&mut self) {
        let mut base = 0x7f00_0000_0000;
        for allocation in &mut self.allocations {
            allocation.base = base;
            base += allocation.bytes.next_multiple_of(512);
        }
    }

    /// Returns the bytes of all allocations.
    pub fn bytes(&self) -> u64 {
        self.allocations.iter().map(|allocation| allocation.bytes).fold(0, u64::saturating_add)
    }

    /// Checks the version, unique names and lengths.
    ///
    /// # Errors
    /// The first defect found.
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
    /// The first defect found.
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
    fn inconsistent_sizes_are_refused() {
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
        assert!(error(three).starts_with("the allocations of all snapshots exceed 2^63 bytes"));
        let raw = |r: &mut RunRecord| {
            let map = PageMap::new(1, [[buddy_core::SizeClass::Raw; 3]]);
            r.sizes[0][0].pages.insert("bpc".to_owned(), map);
        };
        assert!(error(raw).contains("the page map shows classes"));
    }
}
