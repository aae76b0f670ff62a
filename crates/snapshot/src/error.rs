//! Everything that can be wrong with a file of arrays, in one line each.

use buddy_core::Dtype;

/// Why a file could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Which file or which array of it another error is about.
    #[error("{place}: {what}")]
    At {
        /// The path, or the array's name.
        place: String,
        /// What is wrong there.
        what: Box<Error>,
    },
    /// The operating system said no.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// A directory where a file was asked for.
    #[error("this is a directory; give the files in it")]
    Directory,
    /// A pipe, a device or a socket.
    #[error("this is not a regular file, so it cannot be mapped")]
    NotRegular,
    /// No bytes at all.
    #[error("the file is empty")]
    Empty,
    /// A readable file of the right format without a single array.
    #[error("the file holds no arrays")]
    NoArrays,
    /// The element size does not divide the length.
    #[error("{bytes} bytes are not a whole number of {dtype} elements of {size} bytes", size = dtype.bytes())]
    Length {
        /// Bytes that are there.
        bytes: u64,
        /// The element type asked for.
        dtype: Dtype,
    },
    /// Not what the file's name promises.
    #[error("not a valid {format} file: {why}")]
    Format {
        /// The format that was expected.
        format: &'static str,
        /// What is wrong.
        why: String,
    },
    /// An element type that we do not read.
    #[error("unknown dtype {0:?}; known are {list}", list = Dtype::names())]
    Dtype(String),
    /// A header that asks for another number of bytes than there are.
    #[error("shape {shape:?} of {dtype} needs {needed} bytes, but the file has {found} for it")]
    Shape {
        /// The shape in the header.
        shape: Vec<u64>,
        /// The element type in the header.
        dtype: Dtype,
        /// Bytes that the two need.
        needed: u64,
        /// Bytes that are there.
        found: u64,
    },
    /// A shape whose bytes cannot be counted in 64 bits.
    #[error("shape {shape:?} of {dtype} is larger than any file can be")]
    Absurd {
        /// The shape in the header.
        shape: Vec<u64>,
        /// The element type in the header.
        dtype: Dtype,
    },
    /// Two arrays of one name.
    #[error("the name {0:?} appears twice")]
    Duplicate(String),
    /// A compressed member that would grow out of proportion.
    #[error(
        "its members inflate to {inflated} bytes, over the limit of {limit} bytes (1 GiB, or 32 times the file); \
         if you trust it, save the arrays uncompressed"
    )]
    Bomb {
        /// Bytes after decompression, as far as they are known.
        inflated: u64,
        /// The most that is accepted for this file.
        limit: u64,
    },
    /// Not enough room where a file is to be written.
    #[error("{needed} bytes are to be written, but only {free} are free")]
    NoSpace {
        /// Bytes to be written.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
}

impl Error {
    /// Says where the error is, in front of it.
    #[must_use]
    pub fn at(self, place: impl std::fmt::Display) -> Self {
        // A name may hold anything, a message is one line.
        let place = place.to_string();
        let place = if place.contains(char::is_control) { format!("{place:?}") } else { place };
        Self::At { place, what: Box::new(self) }
    }

    /// A complaint about the format of a file.
    pub(crate) fn format(format: &'static str, why: impl Into<String>) -> Self {
        Self::Format { format, why: why.into() }
    }
}
