//! Errors of a sweep.

use std::{io, path::PathBuf};

/// Error in planning, running or collecting a sweep.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Unreadable or invalid plan.
    #[error("{file}: {why}")]
    Plan {
        /// Path of the plan.
        file: String,
        /// The table or setting, and the reason.
        why: String,
    },
    /// A directory or file of the store cannot be created, read or removed.
    #[error("{path}", path = path.display())]
    Store {
        /// The directory or file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A record cannot be written.
    #[error(transparent)]
    File(#[from] buddy_snapshot::Error),
    /// Invalid point or program.
    #[error(transparent)]
    Scenario(#[from] buddy_scenario::Error),
    /// A Slurm command failed or is missing.
    #[error("{command}: {why}")]
    Slurm {
        /// The command, such as `sbatch`.
        command: &'static str,
        /// Its message.
        why: String,
    },
    /// Jobs end without finishing any work.
    #[error("{rounds} rounds of jobs ended without finishing anything; their output is in {logs}", logs = logs.display())]
    Stalled {
        /// Consecutive rounds of jobs.
        rounds: u32,
        /// Folder of their output.
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
