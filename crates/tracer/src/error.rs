//! Errors of tracing a program.

use std::io;

/// Error of tracing a program.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the injected library is damaged.
    #[error("the record of a launch is damaged: {0}")]
    Raw(&'static str),
    /// The disassembler's output has an unknown form.
    #[error("nvdisasm printed a line that is not understood: '{0}'")]
    Sass(String),
    /// The profiler's output has an unknown form.
    #[error("ncu printed a line that is not understood: '{0}'")]
    Counts(String),
    /// Events that no path in the machine code connects.
    #[error("the machine code has no way from instruction {from} to {}", .to.map_or("an exit".to_owned(), |to| format!("instruction {to}")))]
    NoPath {
        /// Instruction at which the path begins.
        from: usize,
        /// Instruction at which it should end; `None` for an exit.
        to: Option<usize>,
    },
    /// A kernel without machine code.
    #[error("the module of kernel '{0}' has no machine code for it")]
    NoCode(String),
    /// Events were lost.
    #[error("{lost} of {all} events of kernel '{kernel}' found no room: raise --room, or lower --blocks")]
    Lost {
        /// The kernel's name.
        kernel: String,
        /// Lost events.
        lost: u64,
        /// All events.
        all: u64,
    },
    /// A tool of the toolkit failed.
    #[error("{tool} failed: {why}")]
    Tool {
        /// The tool's name.
        tool: &'static str,
        /// The end of its output.
        why: String,
    },
    /// A tool or library of the toolkit is missing.
    #[error("there is no {0}: install NVIDIA's CUDA toolkit, or put its bin folder on PATH")]
    Missing(&'static str),
    /// A file cannot be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
}
