//! What can go wrong.

use std::{io, path::PathBuf};

use buddy_scenario::Point;

/// Why a study could not go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A directory cannot be made.
    #[error("cannot make {path}", path = path.display())]
    Directory {
        /// Where records or figures were to go.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No experiment has this name.
    #[error("there is no '{name}'; there are {known}")]
    Name {
        /// What was asked for.
        name: String,
        /// The names of all experiments, with commas.
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
        /// What the profiler found.
        source: buddy_profile::Error,
    },
    /// A workload cannot be run and looked at.
    #[error(transparent)]
    Scenario(buddy_scenario::Error),
    /// A simulation cannot be made.
    #[error("{point} cannot be simulated")]
    Simulation {
        /// The program with its settings, in words.
        point: String,
        /// What the machine, the targets or the model refuse.
        source: Box<buddy_scenario::Error>,
    },
    /// A program whose kernels are not known.
    #[error("{program} cannot be simulated: {why}")]
    NoProgram {
        /// The workload or network.
        program: String,
        /// What is missing of its layers, record or run.
        why: String,
    },
    /// A file cannot be read.
    #[error("cannot read {path}", path = path.display())]
    Read {
        /// The file of a recorded run.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A page of the documentation that cannot be filled.
    #[error("{path}: {what}", path = path.display())]
    Page {
        /// The page.
        path: PathBuf,
        /// What it asks for that there is not.
        what: String,
    },
    /// A record cannot be kept, or an engine cannot go on.
    #[error(transparent)]
    Sweep(#[from] buddy_sweep::Error),
    /// Tasks that fail always, so that figures would be missing.
    #[error("{count} tasks failed; the first is {name}: {why}")]
    GivenUp {
        /// How many.
        count: usize,
        /// The first of them.
        name: String,
        /// What its tries said.
        why: String,
    },
    /// Someone asked for the end.
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
