//! Errors of tracing a program.

use std::io;

/// Error of tracing a program.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the injected library is damaged.
    #[error("the record of a launch is damaged: {0}")]
    Raw(&'static str),
    /// The disassembler printed something new.
    #[error("nvdisasm printed a line that is not understood: '{0}'")]
    Sass(String),
    /// The profiler printed something new.
    #[error("ncu printed a line that is not understood: '{0}'")]
    Counts(String),
    /// Events that the machine code does not explain.
    #[error("the machine code has no way from instruction {from} to {}", .to.map_or("an exit".to_owned(), |to| format!("instruction {to}")))]
    NoPath {
        /// Number of the instruction at which a path begins.
        from: usize,
        /// Number of the one that it should reach; none for an exit.
        to: Option<usize>,
    },
    /// A kernel whose machine code was not found.
    #[error("the module of kernel '{0}' has no machine code for it")]
    NoCode(String),
    /// Fewer events than happened.
    #[error("{lost} of {all} events of kernel '{kernel}' found no room: raise --room, or lower --blocks")]
    Lost {
        /// The kernel's name.
        kernel: String,
        /// Events without room.
        lost: u64,
        /// Events that happened.
        all: u64,
    },
    /// A tool of the toolkit failed.
    #[error("{tool} failed: {why}")]
    Tool {
        /// The tool's name.
        tool: &'static str,
        /// The end of what it said.
        why: String,
    },
    /// A tool or library of the toolkit is missing.
    #[error("there is no {0}: install NVIDIA's CUDA toolkit, or put its bin folder on PATH")]
    Missing(&'static str),
    /// A file cannot be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
}
