//! What the targets of a simulation are called, and the map that they make of a program's memory.

use std::io;

use buddy_core::{Policy, Target, TargetTable};
use buddy_profile::row_codec;
use buddy_sim::{Allocation, TargetsFile};

use crate::Error;

/// The targets of a simulation.
#[derive(Debug, Clone, PartialEq)]
pub enum TargetChoice {
    /// Those of the paper's policy, from the program's own memory.
    Policy,
    /// Those of another policy or threshold, from the program's own memory.
    Rule {
        /// How they are chosen.
        policy: Policy,
        /// The share of entries that may be left to buddy memory, above 0 and below 1.
        threshold: f64,
    },
    /// The same for all allocations.
    All(Target),
    /// Those of the file of this path: by name for a workload, by address for a trace or a generated program.
    File(String),
}

impl TargetChoice {
    /// A ratio or a path, or for none the policy's.
    pub fn named(name: Option<&str>) -> Self {
        let Some(name) = name else { return Self::Policy };
        name.parse().map_or_else(|_| Self::File(name.to_owned()), Self::All)
    }

    /// The table of a file, which must be for this program; none where the targets are no file.
    ///
    /// # Errors
    /// A file that cannot be read, is no table of targets by name, or is for another program.
    pub fn table(&self, program: &str) -> Result<Option<TargetTable>, Error> {
        let Self::File(path) = self else { return Ok(None) };
        let wrong = |why| Error::Targets { path: path.clone(), why };
        let TargetsFile::Named(table) = read(path)? else {
            return Err(wrong(format!("the allocations of {program} have names; its targets go by them")));
        };
        if table.program != program {
            return Err(wrong(format!("the targets are for {}, not for {program}", table.program)));
        }
        let codecs = table.allocations.iter().try_for_each(|row| row_codec(row, Vec::new).map(drop));
        codecs.map_err(|error| wrong(error.to_string()))?;
        Ok(Some(table))
    }
}

/// The allocations of a file that goes by address.
pub(crate) fn addressed(path: &str) -> Result<Vec<Allocation>, Error> {
    match read(path)? {
        TargetsFile::Addressed(allocations) => Ok(allocations),
        TargetsFile::Named(_) => {
            let why = "a trace or a generated program has no names; its targets go by address";
            Err(Error::Targets { path: path.to_owned(), why: why.to_owned() })
        }
    }
}

fn read(path: &str) -> Result<TargetsFile, Error> {
    let ratios = Target::ALL.map(Target::name).join(", ");
    let wrong = |error: io::Error| Error::Targets {
        path: path.to_owned(),
        why: format!("neither a ratio ({ratios}) nor a file that can be read: {error}"),
    };
    Ok(TargetsFile::parse(path, &buddy_core::read_text(path.as_ref()).map_err(wrong)?)?)
}
