//! What was chosen for the allocations of a program: codecs and targets, by name and call site.
//!
//! The functional memory, the simulator and the GPU runtime read it; `docs/targets.md` describes the file.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{AllocationInfo, PAGE_BYTES, RecordKind, Target};

/// The version of the table that this library reads and writes.
pub const TARGETS_VERSION: u32 = 1;

/// A codec and a target for every allocation of a program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetTable {
    /// [`TARGETS_VERSION`].
    pub version: u32,
    /// The program.
    pub program: String,
    /// Its allocations.
    #[serde(rename = "allocation", default)]
    pub allocations: Vec<AllocationTarget>,
}

/// What was chosen for one allocation: one target, or one for each range of its pages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllocationTarget {
    /// Its name.
    pub name: String,
    /// Where the program allocates it.
    #[serde(default)]
    pub call_site: String,
    /// Its length.
    pub bytes: u64,
    /// Name of the codec.
    pub codec: String,
    /// What the codec learned of the allocation. Without them, a codec that learns is trained on the data.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub parameters: Map<String, Value>,
    /// The target of all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// Or the targets of its pages, first to last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<TargetRange>,
}

/// Pages of 8 KiB that lie one after the other with one target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetRange {
    /// How many.
    pub pages: u64,
    /// Their target.
    pub target: Target,
}

impl RecordKind for TargetTable {
    const KIND: &'static str = "targets";
    const VERSION: u32 = 1;
}

/// Why a table of targets is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetsError {
    /// Written by another version.
    #[error("the targets have version {0}; this tool reads version {TARGETS_VERSION}")]
    Version(u32),
    /// A name that two rows have.
    #[error("two rows are for allocation {0:?}")]
    Duplicate(String),
    /// Neither a target nor ranges, or both.
    #[error("allocation {0:?} needs either a target or ranges of pages, and not both")]
    Which(String),
    /// Ranges that are not the pages of the allocation.
    #[error("the ranges of allocation {name:?} have {found} pages; it has {expected} of 8 KiB")]
    Pages {
        /// The allocation.
        name: String,
        /// Pages of its bytes.
        expected: u64,
        /// Pages of its ranges.
        found: u64,
    },
}

impl TargetTable {
    /// One target and one codec for all allocations of a program.
    pub fn uniform(program: &str, allocations: &[AllocationInfo], target: Target, codec: &str) -> Self {
        let row = |info: &AllocationInfo| AllocationTarget {
            name: info.name.clone(),
            call_site: info.call_site.clone(),
            bytes: info.bytes,
            codec: codec.to_owned(),
            parameters: Map::new(),
            target: Some(target),
            ranges: Vec::new(),
        };
        let allocations = allocations.iter().map(row).collect();
        Self { version: TARGETS_VERSION, program: program.to_owned(), allocations }
    }

    /// The row of an allocation.
    pub fn get(&self, name: &str) -> Option<&AllocationTarget> {
        self.allocations.iter().find(|row| row.name == name)
    }

    /// Checks what the types cannot.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn validate(&self) -> Result<(), TargetsError> {
        if self.version != TARGETS_VERSION {
            return Err(TargetsError::Version(self.version));
        }
        let mut names = HashSet::new();
        for row in &self.allocations {
            if !names.insert(&row.name) {
                return Err(TargetsError::Duplicate(row.name.clone()));
            }
            row.validate()?;
        }
        Ok(())
    }
}

impl AllocationTarget {
    /// Its pages of 8 KiB, the last one perhaps in part.
    pub fn pages(&self) -> u64 {
        self.bytes.div_ceil(PAGE_BYTES as u64)
    }

    /// The targets of its pages, first to last; one range where it has one target.
    pub fn page_targets(&self) -> Vec<TargetRange> {
        match self.target {
            Some(target) => vec![TargetRange { pages: self.pages(), target }],
            None => self.ranges.clone(),
        }
    }

    fn validate(&self) -> Result<(), TargetsError> {
        let name = || self.name.clone();
        if self.target.is_some() != self.ranges.is_empty() {
            return Err(TargetsError::Which(name()));
        }
        let (expected, empty) = (self.pages(), self.ranges.iter().any(|range| range.pages == 0));
        let found = self.ranges.iter().fold(0u64, |sum, range| sum.saturating_add(range.pages));
        if self.target.is_none() && (empty || found != expected) {
            return Err(TargetsError::Pages { name: name(), expected, found });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(target: Option<Target>, pages: &[u64]) -> AllocationTarget {
        AllocationTarget {
            name: "u".to_owned(),
            call_site: String::new(),
            bytes: 20_000,
            codec: "bpc".to_owned(),
            parameters: Map::new(),
            target,
            ranges: pages.iter().map(|&pages| TargetRange { pages, target: Target::X2 }).collect(),
        }
    }

    fn error(rows: Vec<AllocationTarget>) -> String {
        let table = TargetTable { version: TARGETS_VERSION, program: "p".to_owned(), allocations: rows };
        table.validate().map_or_else(|error| error.to_string(), |()| "none".to_owned())
    }

    #[test]
    fn a_row_has_a_target_or_ranges_of_all_its_pages() {
        assert_eq!(error(vec![row(Some(Target::X4), &[])]), "none");
        assert_eq!(error(vec![row(None, &[1, 2])]), "none");
        assert!(error(vec![row(None, &[])]).contains("either a target or ranges"));
        assert!(error(vec![row(Some(Target::X4), &[3])]).contains("not both"));
        assert!(error(vec![row(None, &[1, 1])]).contains("have 2 pages; it has 3 of 8 KiB"));
        assert!(error(vec![row(None, &[0, 3])]).contains("have 3 pages"));
        assert!(error(vec![row(None, &[u64::MAX, 4])]).contains("it has 3"));
        let twice = vec![row(None, &[3]), row(None, &[3])];
        assert_eq!(error(twice), "two rows are for allocation \"u\"");
    }
}
