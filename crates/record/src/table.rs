//! The codec and targets chosen for each allocation of a program, by name and call site.
//!
//! Read by the functional memory, the simulator and the GPU runtime. `docs/reference/targets.md`
//! describes the file.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{AllocationInfo, RecordKind};
use buddy_core::{PAGE_BYTES, PhaseChange, RangesError, Target, TargetRange, Targets};

/// Version of the table that this library reads and writes.
pub const TARGETS_VERSION: u32 = 1;

/// Codecs and targets of a program's allocations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetTable {
    /// Must be [`TARGETS_VERSION`].
    pub version: u32,
    /// Name of the program.
    pub program: String,
    /// One row per compressed allocation; allocations without a row stay uncompressed.
    #[serde(rename = "allocation", default)]
    pub allocations: Vec<AllocationTarget>,
    /// Changes that a program may apply at its checkpoints, in the order of the run. The rows are
    /// valid without them.
    #[serde(rename = "change", default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<PhaseChange>,
}

/// Codec and targets of one allocation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Row", into = "Row")]
pub struct AllocationTarget {
    /// Name of the allocation, unique in the table.
    pub name: String,
    /// Call site of the allocation.
    pub call_site: String,
    /// Length in bytes for which the targets were chosen.
    pub bytes: u64,
    /// Name of the codec.
    pub codec: String,
    /// Trained parameters of the codec. If empty, a codec with parameters is trained on the data.
    pub parameters: Map<String, Value>,
    /// Targets; page ranges count 8 KiB pages.
    pub targets: Targets,
}

/// Serialized form of a row: a target or ranges.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    #[serde(default)]
    call_site: String,
    bytes: u64,
    codec: String,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    parameters: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target: Option<Target>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ranges: Vec<TargetRange>,
}

impl TryFrom<Row> for AllocationTarget {
    type Error = TargetsError;

    fn try_from(row: Row) -> Result<Self, TargetsError> {
        let Row { name, call_site, bytes, codec, parameters, target, ranges } = row;
        let targets = match (target, ranges.is_empty()) {
            (Some(target), true) => Targets::Uniform(target),
            (None, false) => Targets::Pages(ranges),
            _ => return Err(TargetsError::TargetOrRanges(name)),
        };
        let row = Self { name, call_site, bytes, codec, parameters, targets };
        row.ranges()?;
        Ok(row)
    }
}

impl From<AllocationTarget> for Row {
    fn from(row: AllocationTarget) -> Self {
        let AllocationTarget { name, call_site, bytes, codec, parameters, targets } = row;
        let (target, ranges) = match targets {
            Targets::Uniform(target) => (Some(target), Vec::new()),
            Targets::Pages(ranges) => (None, ranges),
        };
        Self { name, call_site, bytes, codec, parameters, target, ranges }
    }
}

impl RecordKind for TargetTable {
    const KIND: &'static str = "targets";
    const VERSION: u32 = 1;

    fn check(&self) -> Result<(), String> {
        self.validate().map_err(|error| error.to_string())
    }
}

/// Errors of validating a target table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetsError {
    /// Written by another version.
    #[error("the targets have version {0}; this tool reads version {TARGETS_VERSION}")]
    Version(u32),
    /// Two rows for one allocation.
    #[error("two rows are for allocation {0:?}")]
    Duplicate(String),
    /// Neither a target nor ranges, or both.
    #[error("allocation {0:?} needs a target or page ranges, but not both")]
    TargetOrRanges(String),
    /// Ranges that do not cover the pages of the allocation.
    #[error("the targets of allocation {name:?} do not fit its pages of 8 KiB: {why}")]
    Ranges {
        /// Name of the allocation.
        name: String,
        /// The mismatch.
        why: RangesError,
    },
    /// A change for an allocation without a row.
    #[error("a change is for allocation {0:?}, which has no row")]
    Change(String),
    /// Not TOML, or an unknown or missing field.
    #[error("invalid targets file: {0}")]
    Toml(String),
}

impl TargetTable {
    /// Creates a table with one target and codec for all allocations.
    pub fn uniform(program: &str, allocations: &[AllocationInfo], target: Target, codec: &str) -> Self {
        let row = |info: &AllocationInfo| AllocationTarget {
            name: info.name.clone(),
            call_site: info.call_site.clone(),
            bytes: info.bytes,
            codec: codec.to_owned(),
            parameters: Map::new(),
            targets: target.into(),
        };
        let allocations = allocations.iter().map(row).collect();
        Self { version: TARGETS_VERSION, program: program.to_owned(), allocations, changes: Vec::new() }
    }

    /// Parses and checks a targets file.
    ///
    /// # Errors
    /// [`TargetsError::Toml`] with the line for invalid TOML; otherwise the first inconsistency.
    pub fn parse(text: &str) -> Result<Self, TargetsError> {
        let table: Self = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| text[..span.start].lines().count().max(1));
            TargetsError::Toml(format!("line {line}: {}", error.message().replace('\n', " ")))
        })?;
        table.validate()?;
        Ok(table)
    }

    /// Returns the row of an allocation.
    pub fn get(&self, name: &str) -> Option<&AllocationTarget> {
        self.allocations.iter().find(|row| row.name == name)
    }

    /// Returns the table at a snapshot: rows hold the targets in effect, and only changes at that
    /// snapshot remain.
    #[must_use]
    pub fn at(&self, snapshot: usize) -> Self {
        let mut table = self.clone();
        for row in &mut table.allocations {
            let begun = |change: &&PhaseChange| change.name == row.name && change.snapshot <= snapshot;
            // At equal snapshots the later change wins.
            if let Some(change) = self.changes.iter().filter(begun).max_by_key(|change| change.snapshot) {
                row.targets = Targets::from_ranges(change.ranges.clone());
            }
        }
        table.changes.retain(|change| change.snapshot == snapshot);
        table
    }

    /// Checks the version, unique names, and that changes match the pages of their rows.
    ///
    /// # Errors
    /// The first defect found.
    pub fn validate(&self) -> Result<(), TargetsError> {
        if self.version != TARGETS_VERSION {
            return Err(TargetsError::Version(self.version));
        }
        let mut names = HashSet::new();
        match self.allocations.iter().find(|row| !names.insert(&row.name)) {
            Some(row) => Err(TargetsError::Duplicate(row.name.clone())),
            None => self.changes.iter().try_for_each(|change| self.check_change(change)),
        }
    }

    fn check_change(&self, change: &PhaseChange) -> Result<(), TargetsError> {
        let row = self.get(&change.name).ok_or_else(|| TargetsError::Change(change.name.clone()))?;
        AllocationTarget { targets: Targets::Pages(change.ranges.clone()), ..row.clone() }.ranges().map(drop)
    }
}

impl AllocationTarget {
    /// Returns the targets of its 8 KiB pages, first to last; one range for a uniform target.
    ///
    /// # Errors
    /// [`TargetsError::Ranges`] if the ranges do not cover its pages.
    pub fn ranges(&self) -> Result<Vec<TargetRange>, TargetsError> {
        self.ranges_of(self.bytes)
    }

    /// Returns the ranges for an allocation of another length; a uniform target fits any length.
    ///
    /// # Errors
    /// [`TargetsError::Ranges`] if the ranges do not cover the pages of `bytes`.
    pub fn ranges_of(&self, bytes: u64) -> Result<Vec<TargetRange>, TargetsError> {
        let ranges = self.targets.ranges(bytes.div_ceil(PAGE_BYTES as u64));
        ranges.map_err(|why| TargetsError::Ranges { name: self.name.clone(), why })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "version = 1\nprogram = \"p\"\n";
    const ROW: &str = "[[allocation]]\nname = \"u\"\nbytes = 20000\ncodec = \"bpc\"\n";

    fn error(rows: &[&str]) -> String {
        let rows: String = rows.iter().map(|row| format!("{ROW}{row}\n")).collect();
        TargetTable::parse(&format!("{HEAD}{rows}"))
            .map_or_else(|error| error.to_string(), |_| "none".to_owned())
    }

    fn ranges(pages: &[u64]) -> String {
        let range = |pages| format!("{{ pages = {pages}, target = \"2x\" }}, ");
        format!("ranges = [{}]", pages.iter().map(range).collect::<String>())
    }

    #[test]
    fn a_row_has_a_target_or_ranges_of_all_its_pages() {
        for target in ["4x", "uncompressed"] {
            assert_eq!(error(&[&format!("target = \"{target}\"")]), "none");
        }
        assert_eq!(error(&[&ranges(&[1, 2])]), "none");
        assert!(error(&[""]).contains("needs a target or page ranges"));
        assert!(error(&[&format!("target = \"4x\"\n{}", ranges(&[3]))]).contains("not both"));
        assert!(error(&[&ranges(&[1, 1])]).contains("the ranges have 2 pages; it has 3"));
        assert!(error(&[&ranges(&[0, 3])]).contains("a range has no pages"));
        assert!(error(&[&ranges(&[i64::MAX as u64, 4])]).contains("it has 3"));
        assert_eq!(error(&[&ranges(&[3]), &ranges(&[3])]), "two rows are for allocation \"u\"");
        let other = format!("version = 2\nprogram = \"p\"\n{ROW}target = \"4x\"\n");
        assert!(TargetTable::parse(&other).unwrap_err().to_string().contains("have version 2"));
    }

    #[test]
    fn a_change_is_for_the_pages_of_a_row() {
        let change = |name: &str, pages: &str| {
            error(&[&format!(
                "target = \"4x\"\n[[change]]\nsnapshot = 2\nname = \"{name}\"\nbytes_moved = 0\n{pages}"
            )])
        };
        assert_eq!(change("u", &ranges(&[1, 2])), "none");
        assert!(change("u", &ranges(&[1])).contains("the ranges have 1 pages; it has 3"));
        assert_eq!(change("v", &ranges(&[3])), "a change is for allocation \"v\", which has no row");
    }

    #[test]
    fn the_last_change_up_to_a_snapshot_applies() {
        let change = |snapshot: usize, target: &str| {
            let range = format!("ranges = [{{ pages = 3, target = \"{target}\" }}]");
            format!("[[change]]\nsnapshot = {snapshot}\nname = \"u\"\nbytes_moved = 7\n{range}\n")
        };
        let changes = [change(0, "16x"), change(4, "4x"), change(6, "2x")].concat();
        let table = TargetTable::parse(&format!("{HEAD}{ROW}target = \"1x\"\n{changes}")).unwrap();
        let target = |snapshot| table.at(snapshot).allocations[0].targets.uniform();
        assert_eq!([0, 3, 4, 9].map(target), [Target::X16, Target::X16, Target::X4, Target::X2].map(Some));
        assert_eq!([3, 4].map(|snapshot| table.at(snapshot).changes.len()), [0, 1]);
        assert_eq!(TargetTable { changes: Vec::new(), ..table.clone() }.at(9).allocations, table.allocations);
    }

    #[test]
    fn rows_in_records_and_files_have_the_same_fields() {
        let table = TargetTable::parse(&format!(
            "{HEAD}{ROW}target = \"4/3x\"\n{}",
            ROW.replace('u', "v") + &ranges(&[1, 2])
        ));
        let table = table.unwrap();
        let json = serde_json::to_value(&table).unwrap();
        assert_eq!(json["allocation"][0]["target"], "4/3x");
        assert_eq!(json["allocation"][1]["ranges"][1]["pages"], 2);
        assert_eq!(serde_json::from_value::<TargetTable>(json).unwrap(), table);
        assert_eq!(table.allocations[0].ranges_of(1 << 20).unwrap()[0].pages, 128);
        assert!(table.allocations[1].ranges_of(1 << 20).is_err());
    }
}
