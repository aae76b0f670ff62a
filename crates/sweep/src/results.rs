//! Results of a sweep as one record, to draw elsewhere and later.

use buddy_record::{Record, RecordKind};
use buddy_scenario::TOOL;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{Rows, Sweep};

/// The finished points of a sweep with the chosen columns. The record's `spec` holds the text of
/// the plan, its `tool` the build that made the points.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Results {
    /// The plan's name.
    pub name: String,
    /// Number of missing points.
    pub missing: usize,
    /// One object per point: settings and metrics by name.
    pub rows: Vec<Map<String, Value>>,
}

impl RecordKind for Results {
    const KIND: &'static str = "sweep";
    const VERSION: u32 = 1;

    fn check(&self) -> Result<(), String> {
        let Some(first) = self.rows.first() else { return Ok(()) };
        match self.rows.iter().position(|row| !row.keys().eq(first.keys())) {
            Some(at) => Err(format!("row {} has different columns from the first", at + 1)),
            None => Ok(()),
        }
    }
}

impl Sweep {
    /// Returns the rows as a record with its plan.
    pub fn record(&self, rows: &Rows, plan: &str) -> Record<Results> {
        let name = self.points().plan().name.clone();
        let results = Results { name, missing: rows.missing, rows: rows.objects().collect() };
        Record { tool: TOOL.to_owned(), spec: json!({ "plan": plan }), ..Record::new(results) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_the_same_columns() {
        let row = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), json!(1))).collect();
        let of = |rows| Results { name: String::new(), missing: 0, rows }.check();
        assert_eq!(of(vec![row(&["a", "b"]), row(&["b", "a"])]), Ok(()));
        assert_eq!(
            of(vec![row(&["a"]), row(&["b"])]),
            Err("row 2 has different columns from the first".to_owned())
        );
    }
}
