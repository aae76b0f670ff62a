//! What can go wrong on the way to a simulation.

use std::{io, path::PathBuf};

/// Why a scenario cannot be made or run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Neither a file nor a name that is known.
    #[error("'{what}' is no trace and no program; {known}")]
    Unknown {
        /// What was asked for.
        what: String,
        /// A sentence with the names of all programs, workloads and networks.
        known: String,
    },
    /// A setting that is none, or does not go with the others.
    #[error("{0}")]
    Setting(String),
    /// A file of targets that cannot be used here.
    #[error("{path}: {why}")]
    Targets {
        /// The file, or what was taken for one.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// The memory of a program cannot be profiled.
    #[error("{program} cannot be profiled")]
    Profile {
        /// The workload or network.
        program: String,
        /// What the profiler found.
        source: buddy_profile::Error,
    },
    /// A record of a network that was made with other codecs.
    #[error("the record of {program} has no sizes of codec {codec}")]
    NoSizes {
        /// The network whose record it is.
        program: String,
        /// The codec asked for.
        codec: &'static str,
    },
    /// There is no such GPU or link, or its file is wrong.
    #[error(transparent)]
    Spec(#[from] buddy_core::spec::SpecError),
    /// The model refuses allocations or a kernel.
    #[error(transparent)]
    Sim(#[from] buddy_sim::Error),
    /// A trace is none.
    #[error(transparent)]
    Trace(#[from] buddy_trace::Error),
    /// A network is none.
    #[error(transparent)]
    Network(#[from] buddy_dl::Error),
    /// A file cannot be read.
    #[error("cannot read {path}", path = path.display())]
    Read {
        /// The file of a recorded run or of a trace.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A recorded run is none.
    #[error("the record of {name} cannot be used")]
    Recorded {
        /// The network, or `accuracy`.
        name: String,
        /// What is wrong with the file.
        source: buddy_core::RecordError,
    },
    /// A recorded run contradicts itself.
    #[error("the record of {name} cannot be used")]
    Run {
        /// The network whose record it is.
        name: String,
        /// What contradicts what.
        source: buddy_core::RunError,
    },
    /// Whoever watched a workload's run asked for its end.
    #[error("interrupted")]
    Interrupted,
}
