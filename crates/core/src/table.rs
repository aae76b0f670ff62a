//! What was chosen for the allocations of a program: codecs and targets, by name and call site.
//!
//! The functional memory, the simulator and the GPU runtime read it; `docs/reference/targets.md` describes the file.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{AllocationInfo, PAGE_BYTES, PhaseChange, RangesError, RecordKind, Target, TargetRange, Targets};

/// The version of the table that this library reads and writes.
pub const TARGETS_VERSION: u32 = 1;

/// A codec and targets for every allocation of a program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetTable {
    /// [`TARGETS_VERSION`], or the table is refused.
    pub version: u32,
    /// The program whose allocations these are.
    pub program: String,
    /// A row for each allocation; one without is not compressed.
    #[serde(rename = "allocation", default)]
    pub allocations: Vec<AllocationTarget>,
    /// What a program that asks for it at its checkpoints may change, in the order of the run. The rows hold without them.
    #[serde(rename = "change", default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<PhaseChange>,
}

/// What was chosen for one allocation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Row", into = "Row")]
pub struct AllocationTarget {
    /// The allocation's name, which no other row has.
    pub name: String,
    /// Where the program allocates it.
    pub call_site: String,
    /// Bytes of the allocation that the targets were chosen for.
    pub bytes: u64,
    /// Name of the codec.
    pub codec: String,
    /// What the codec learned of the allocation. Without them, a codec that learns is trained on the data.
    pub parameters: Map<String, Value>,
    /// Its targets; ranges are of pages of 8 KiB.
    pub targets: Targets,
}

/// A row as files and records have it: a target, or ranges.
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
            _ => return Err(TargetsError::Which(name)),
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
    #[error("the targets of allocation {name:?} do not fit its pages of 8 KiB: {why}")]
    Ranges {
        /// Name of the allocation.
        name: String,
        /// What does not add up.
        why: RangesError,
    },
    /// A change of an allocation that has no row.
    #[error("a change is for allocation {0:?}, which has no row")]
    Change(String),
    /// A text that is no TOML, or has an unknown or missing field.
    #[error("not a file of targets: {0}")]
    Toml(String),
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
            targets: target.into(),
        };
        let allocations = allocations.iter().map(row).collect();
        Self { version: TARGETS_VERSION, program: program.to_owned(), allocations, changes: Vec::new() }
    }

    /// Reads and checks the text of a file of targets.
    ///
    /// # Errors
    /// [`TargetsError::Toml`] with the line for a text that is not one; otherwise what the table contradicts.
    pub fn parse(text: &str) -> Result<Self, TargetsError> {
        let table: Self = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| text[..span.start].lines().count().max(1));
            TargetsError::Toml(format!("line {line}: {}", error.message().replace('\n', " ")))
        })?;
        table.validate()?;
        Ok(table)
    }

    /// The row of an allocation.
    pub fn get(&self, name: &str) -> Option<&AllocationTarget> {
        self.allocations.iter().find(|row| row.name == name)
    }

    /// The table at a snapshot of the run: every row has the targets that hold there, and of the changes those are left that begin there.
    #[must_use]
    pub fn at(&self, snapshot: usize) -> Self {
        let mut table = self.clone();
        for row in &mut table.allocations {
            let begun = |change: &&PhaseChange| change.name == row.name && change.snapshot <= snapshot;
            // Of two at the same snapshot the later one holds.
            if let Some(change) = self.changes.iter().filter(begun).max_by_key(|change| change.snapshot) {
                row.targets = Targets::of(change.ranges.clone());
            }
        }
        table.changes.retain(|change| change.snapshot == snapshot);
        table
    }

    /// Checks what the rows cannot: the version, that no two are for the same allocation, and that changes are for their pages.
    ///
    /// # Errors
    /// The first thing that is wrong.
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
    /// The targets of its pages of 8 KiB, first to last; one range where it has one target.
    ///
    /// # Errors
    /// [`TargetsError::Ranges`] for ranges that are not its pages.
    pub fn ranges(&self) -> Result<Vec<TargetRange>, TargetsError> {
        self.ranges_of(self.bytes)
    }

    /// The same for an allocation of another length: one target serves any.
    ///
    /// # Errors
    /// [`TargetsError::Ranges`] for ranges of other pages than those of `bytes`.
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
        assert!(error(&[""]).contains("either a target or ranges"));
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
    fn the_last_change_that_has_begun_holds() {
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
    fn a_row_in_a_record_has_the_fields_of_a_row_in_a_file() {
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
