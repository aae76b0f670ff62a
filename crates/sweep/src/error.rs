//! What can go wrong with a sweep.

use std::{io, path::PathBuf};

/// Why a sweep cannot be planned, run or collected.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A plan that cannot be read or is none.
    #[error("{file}: {why}")]
    Plan {
        /// The path of the plan.
        file: String,
        /// The table or setting, and what is wrong with it.
        why: String,
    },
    /// A directory or file of the store cannot be made, read or removed.
    #[error("{path}", path = path.display())]
    Store {
        /// The directory or file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A record cannot be written.
    #[error(transparent)]
    File(#[from] buddy_snapshot::Error),
    /// A point or program that cannot be.
    #[error(transparent)]
    Scenario(#[from] buddy_scenario::Error),
    /// A command of Slurm that failed, or that there is none of.
    #[error("{command}: {why}")]
    Slurm {
        /// The command, such as `sbatch`.
        command: &'static str,
        /// What it said.
        why: String,
    },
    /// Jobs end, and no work gets done.
    #[error("{rounds} rounds of jobs ended without finishing anything; their output is in {logs}", logs = logs.display())]
    Stalled {
        /// Rounds of jobs in a row.
        rounds: u32,
        /// Where their output is.
        logs: PathBuf,
    },
}

impl Error {
    pub(crate) fn plan(file: &str, why: impl ToString) -> Self {
        let why = why.to_string().lines().map(str::trim).collect::<Vec<_>>().join(" ");
        Self::Plan { file: file.to_owned(), why }
    }

    pub(crate) fn store(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Store { path, source }
    }
}
