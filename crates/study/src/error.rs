//! Errors of a study.

use std::{io, path::PathBuf};

use buddy_scenario::Point;

/// Error in running a study.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A directory cannot be created.
    #[error("cannot create {path}", path = path.display())]
    Directory {
        /// Folder of records or figures.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Unknown experiment.
    #[error("unknown experiment '{name}'; use one of {known}")]
    Name {
        /// The requested name.
        name: String,
        /// Names of all experiments, separated by commas.
        known: String,
    },
    /// A file cannot be written.
    #[error(transparent)]
    File(#[from] buddy_snapshot::Error),
    /// A recorded run cannot be profiled.
    #[error("{program} cannot be profiled")]
    Profile {
        /// The network whose record it is.
        program: String,
        /// Error of the profiler.
        source: buddy_profile::Error,
    },
    /// A workload cannot be run and measured.
    #[error(transparent)]
    Scenario(buddy_scenario::Error),
    /// A simulation cannot be prepared.
    #[error("{point} cannot be simulated")]
    Simulation {
        /// The program and its settings.
        point: String,
        /// Error of the machine, the targets or the model.
        source: Box<buddy_scenario::Error>,
    },
    /// A program without known kernels.
    #[error("{program} cannot be simulated: {why}")]
    NoProgram {
        /// The workload or network.
        program: String,
        /// The missing part of its layers, record or run.
        why: String,
    },
    /// A file cannot be read.
    #[error("cannot read {path}", path = path.display())]
    Read {
        /// The file of a recorded run.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A page of the documentation that cannot be filled.
    #[error("{path}: {what}", path = path.display())]
    Page {
        /// The page.
        path: PathBuf,
        /// The table or picture it asks for.
        what: String,
    },
    /// A record cannot be stored, or an engine failed.
    #[error(transparent)]
    Sweep(#[from] buddy_sweep::Error),
    /// Tasks that failed in every attempt, so that figures would be incomplete.
    #[error("{count} tasks failed; the first is {name}: {why}")]
    GivenUp {
        /// Number of failed tasks.
        count: usize,
        /// The first of them.
        name: String,
        /// Errors of its attempts.
        why: String,
    },
    /// Interrupted by the user.
    #[error("interrupted")]
    Interrupted,
}

impl From<buddy_scenario::Error> for Error {
    fn from(error: buddy_scenario::Error) -> Self {
        if let buddy_scenario::Error::Interrupted = error { Self::Interrupted } else { Self::Scenario(error) }
    }
}

impl Error {
    pub(crate) fn of_point(point: &Point, source: impl Into<buddy_scenario::Error>) -> Self {
        Self::Simulation { point: point.name(), source: Box::new(source.into()) }
    }
}
