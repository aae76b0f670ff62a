//! Results of a sweep as one record, for figures that are drawn elsewhere and later.

use buddy_core::{Record, RecordKind};
use buddy_scenario::TOOL;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{Rows, Sweep};

/// The points of a sweep that are done, under the chosen columns. The record's `spec` holds the text of the plan, its `tool` the
/// build that made the points.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Results {
    /// The plan's name.
    pub name: String,
    /// Points that are not there.
    pub missing: usize,
    /// An object for each point: settings and figures by their names.
    pub rows: Vec<Map<String, Value>>,
}

impl RecordKind for Results {
    const KIND: &'static str = "sweep";
    const VERSION: u32 = 1;

    fn check(&self) -> Result<(), String> {
        let Some(first) = self.rows.first() else { return Ok(()) };
        match self.rows.iter().position(|row| !row.keys().eq(first.keys())) {
            Some(at) => Err(format!("row {} has other columns than the first", at + 1)),
            None => Ok(()),
        }
    }
}

impl Sweep {
    /// Rows as a record, with the plan that they are of.
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
            Err("row 2 has other columns than the first".to_owned())
        );
    }
}
