//! Choice of targets, and the files they come from.

use std::io;

use buddy_core::Target;
use buddy_profile::row_codec;
use buddy_record::{Policy, TargetTable};
use buddy_sim::{Allocation, TargetsFile};

use crate::{Error, Imposed};

/// The targets of a simulation.
#[derive(Debug, Clone, PartialEq)]
pub enum TargetChoice {
    /// Targets of the paper's policy, from the program's own memory.
    Policy,
    /// Targets of another policy or threshold, from the program's own memory.
    Rule {
        /// The policy.
        policy: Policy,
        /// Share of entries that may overflow to buddy memory, from 0 to below 1.
        threshold: f64,
    },
    /// Targets of the paper's policy with everything compressed: 1x instead of uncompressed memory.
    Compressed,
    /// Targets that reach a capacity with the fewest overflowing entries.
    Capacity(f64),
    /// Targets and size classes of a stated ratio and overflow.
    Imposed(Imposed),
    /// The same target for all allocations.
    All(Target),
    /// Targets by name, such as those of a smaller run.
    Table(Box<TargetTable>),
    /// Targets of a file: by name for a workload, by address for a trace or generated program.
    File(String),
}

impl TargetChoice {
    /// Parses a ratio, `compressed`, `capacity:RATIO` or `imposed:RATIO,OVERFLOW,STORED`, or takes
    /// a path; `None` is the policy's targets.
    pub fn named(name: Option<&str>) -> Self {
        let Some(name) = name else { return Self::Policy };
        if name == "compressed" {
            return Self::Compressed;
        }
        let capacity = name.strip_prefix("capacity:").and_then(|text| text.parse().ok()).map(Self::Capacity);
        let imposed = name.strip_prefix("imposed:").and_then(Imposed::parse).map(Self::Imposed);
        let forced = capacity.or(imposed);
        forced.unwrap_or_else(|| name.parse().map_or_else(|_| Self::File(name.to_owned()), Self::All))
    }

    /// Returns the table of a file, which must be for this program; `None` without a file.
    ///
    /// # Errors
    /// An unreadable file, one without named targets, or one for another program.
    pub fn table(&self, program: &str) -> Result<Option<TargetTable>, Error> {
        let Self::File(path) = self else { return Ok(None) };
        let wrong = |why| Error::Targets { path: path.clone(), why };
        let TargetsFile::Named(table) = read(path)? else {
            return Err(wrong(format!("the targets of {program} must go by the names of its allocations")));
        };
        if table.program != program {
            return Err(wrong(format!("the targets are for {}, not for {program}", table.program)));
        }
        let codecs = table.allocations.iter().try_for_each(|row| row_codec(row, Vec::new).map(drop));
        codecs.map_err(|error| wrong(error.to_string()))?;
        Ok(Some(table))
    }
}

/// Reads the allocations of an addressed targets file.
pub(crate) fn addressed(path: &str) -> Result<Vec<Allocation>, Error> {
    match read(path)? {
        TargetsFile::Addressed(allocations) => Ok(allocations),
        TargetsFile::Named(_) => {
            let why = "a trace or generated program has no named allocations; its targets must go by address";
            Err(Error::Targets { path: path.to_owned(), why: why.to_owned() })
        }
    }
}

fn read(path: &str) -> Result<TargetsFile, Error> {
    let ratios = Target::ALL.map(Target::name).join(", ");
    let wrong = |error: io::Error| Error::Targets {
        path: path.to_owned(),
        why: format!("neither a ratio ({ratios}) nor a readable file: {error}"),
    };
    Ok(TargetsFile::parse(path, &buddy_core::read_text(path.as_ref()).map_err(wrong)?)?)
}
