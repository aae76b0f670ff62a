//! Errors in preparing or running a simulation.

use std::{io, path::PathBuf};

/// Error in preparing or running a scenario.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Neither a file nor a known name.
    #[error("'{what}' is neither a trace nor a known program; {known}")]
    Unknown {
        /// The requested name.
        what: String,
        /// Text with the names of all programs, workloads and networks.
        known: String,
    },
    /// Unknown setting, invalid value or contradiction.
    #[error("{0}")]
    Setting(String),
    /// Targets file that cannot be used here.
    #[error("{path}: {why}")]
    Targets {
        /// The file, or the text taken for one.
        path: String,
        /// Reason.
        why: String,
    },
    /// The memory of a program cannot be profiled.
    #[error("{program} cannot be profiled")]
    Profile {
        /// The workload or network.
        program: String,
        /// Error of the profiler.
        source: buddy_profile::Error,
    },
    /// The record of a network lacks the sizes of a codec.
    #[error("the record of {program} has no sizes of codec {codec}")]
    NoSizes {
        /// The network whose record it is.
        program: String,
        /// The requested codec.
        codec: &'static str,
    },
    /// Unknown GPU or link, or an invalid file.
    #[error(transparent)]
    Spec(#[from] buddy_record::spec::SpecError),
    /// The simulator rejects allocations or a kernel.
    #[error(transparent)]
    Sim(#[from] buddy_sim::Error),
    /// Invalid trace.
    #[error(transparent)]
    Trace(#[from] buddy_trace::Error),
    /// Invalid network.
    #[error(transparent)]
    Network(#[from] buddy_dl::Error),
    /// A file cannot be read.
    #[error("cannot read {path}", path = path.display())]
    Read {
        /// The file of a recorded run or of a trace.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Invalid record of a recorded run.
    #[error("the record of {name} cannot be used")]
    Recorded {
        /// The network, or `accuracy`.
        name: String,
        /// Error in the record.
        source: buddy_record::RecordError,
    },
    /// A recorded run contradicts itself.
    #[error("the record of {name} cannot be used")]
    Run {
        /// The network whose record it is.
        name: String,
        /// The contradiction.
        source: buddy_record::RunError,
    },
    /// The caller stopped the run of a workload.
    #[error("interrupted")]
    Interrupted,
}
