//! What can go wrong.

use std::{io, path::PathBuf};

/// Why a study could not go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A directory cannot be made.
    #[error("cannot make {path}", path = path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No experiment has this name.
    #[error("there is no '{name}'; there are {known}")]
    Name {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// A file cannot be written.
    #[error(transparent)]
    File(#[from] buddy_snapshot::Error),
    /// A run cannot be profiled.
    #[error("{program} cannot be profiled")]
    Profile {
        /// Of what.
        program: String,
        /// Why.
        source: buddy_profile::Error,
    },
    /// A simulation cannot be made.
    #[error("{point} cannot be simulated")]
    Simulation {
        /// Which.
        point: String,
        /// Why.
        source: buddy_sim::Error,
    },
    /// A program whose kernels are not known.
    #[error("{program} cannot be simulated: {why}")]
    NoProgram {
        /// Which.
        program: String,
        /// What is missing.
        why: String,
    },
    /// A record that was made with other codecs.
    #[error("the record of {program} has no sizes of codec {codec}")]
    NoSizes {
        /// Of what.
        program: String,
        /// The codec asked for.
        codec: &'static str,
    },
    /// A file cannot be read.
    #[error("cannot read {path}", path = path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A recorded run is none.
    #[error("the record of {name} cannot be used")]
    Recorded {
        /// Which.
        name: String,
        /// Why.
        source: buddy_core::RecordError,
    },
    /// A recorded run contradicts itself.
    #[error("the record of {name} cannot be used")]
    Run {
        /// Which.
        name: String,
        /// Why.
        source: buddy_core::RunError,
    },
    /// Someone asked for the end.
    #[error("interrupted")]
    Interrupted,
}
