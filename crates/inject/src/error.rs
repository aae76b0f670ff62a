//! Errors of watching a program.

use std::path::PathBuf;

/// An error of watching a program, or of its log. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program cannot be started.
    #[error("cannot run {program}: {cause}")]
    Start {
        /// The program as given.
        program: String,
        /// The operating system's error.
        cause: std::io::Error,
    },
    /// An own file that cannot be written, read or moved.
    #[error("{path}: {cause}")]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        cause: std::io::Error,
    },
    /// A log line that this version does not write.
    #[error("line {line} of the log is not what this version writes: {text:?}")]
    Log {
        /// Line number, from 1.
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
