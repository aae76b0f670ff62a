//! Errors of watching a program.

use std::path::PathBuf;

/// Why a program could not be watched, or its log not be read. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program cannot be started.
    #[error("cannot run {program}: {cause}")]
    Start {
        /// The program, as it was named.
        program: String,
        /// The operating system's error.
        cause: std::io::Error,
    },
    /// A file of ours that cannot be written, read or moved.
    #[error("{path}: {cause}")]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        cause: std::io::Error,
    },
    /// A log that is not one of this version.
    #[error("line {line} of the log is not what this version writes: {text:?}")]
    Log {
        /// Its number, from 1.
        line: usize,
        /// The line.
        text: String,
    },
}

impl Error {
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |cause| Self::File { path, cause }
    }
}
