//! What the targets of a simulation are called, and the map that they make of a program's memory.

use std::io;

use buddy_core::{Target, TargetTable};
use buddy_profile::read_targets;

use crate::Error;

/// The targets of a simulation.
#[derive(Debug, Clone, PartialEq)]
pub enum Targets {
    /// Those of the paper's policy, from the program's own memory.
    Policy,
    /// The same for all allocations.
    All(Target),
    /// Those of the file of this path: by name for a workload, by address for a trace or a generated program.
    File(String),
}

impl Targets {
    /// A ratio or a path, or for none the policy's.
    pub fn named(name: Option<&str>) -> Self {
        let Some(name) = name else { return Self::Policy };
        name.parse().map_or_else(|_| Self::File(name.to_owned()), Self::All)
    }

    /// The table of a file, which must be for this program; none where the targets are no file.
    ///
    /// # Errors
    /// A file that cannot be read, is no table of targets, or is for another program.
    pub fn table(&self, program: &str) -> Result<Option<TargetTable>, Error> {
        let Self::File(path) = self else { return Ok(None) };
        let wrong = |why| Error::Targets { path: path.clone(), why };
        let table = read_targets(&Self::text(path)?).map_err(|error| wrong(error.to_string()))?;
        if table.program != program {
            return Err(wrong(format!("the targets are for {}, not for {program}", table.program)));
        }
        Ok(Some(table))
    }

    /// What the file holds.
    pub(crate) fn text(path: &str) -> Result<String, Error> {
        let wrong = |error: io::Error| Error::Targets {
            path: path.to_owned(),
            why: format!("neither a ratio, such as 2x, nor a file that can be read: {error}"),
        };
        std::fs::read_to_string(path).map_err(wrong)
    }
}
