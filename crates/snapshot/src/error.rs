//! Errors of files of arrays, one line each.

use buddy_core::Dtype;

/// Why a file could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Adds the file or array to another error.
    #[error("{place}: {what}")]
    At {
        /// The path, or the array's name.
        place: String,
        /// The error.
        what: Box<Error>,
    },
    /// An error of the operating system.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A directory instead of a file.
    #[error("this is a directory; give the files in it")]
    Directory,
    /// A pipe, a device or a socket.
    #[error("this is not a regular file, so it cannot be mapped")]
    NotRegular,
    /// An empty file.
    #[error("the file is empty")]
    Empty,
    /// A valid file without arrays.
    #[error("the file holds no arrays")]
    NoArrays,
    /// A readable file in which nothing is an array of numbers.
    #[error("the file holds no arrays that can be read: {name:?} was skipped, since {why} ({others} more)")]
    NothingRead {
        /// The first thing that was skipped.
        name: String,
        /// The reason.
        why: String,
        /// Number of others.
        others: usize,
    },
    /// Something that a valid file may have and that is not read.
    #[error("not read: {0}")]
    Unsupported(String),
    /// The element size does not divide the length.
    #[error("{bytes} bytes are not a whole number of {dtype} elements of {size} bytes", size = dtype.bytes())]
    Length {
        /// Bytes of the file.
        bytes: u64,
        /// The requested element type.
        dtype: Dtype,
    },
    /// The content contradicts the file's name.
    #[error("not a valid {format} file: {why}")]
    Format {
        /// The expected format.
        format: &'static str,
        /// The field and the reason.
        why: String,
    },
    /// A folder without files of arrays.
    #[error(
        "this folder holds no file of arrays (.safetensors, .gguf, .pt, .npy, .npz, .h5, .nc) and no raw dump (.f64, .dat and others); give its files by name"
    )]
    NoArrayFiles,
    /// A shard that the index names is missing.
    #[error("the shard {0:?} is missing")]
    Shard(String),
    /// A file that is not memory and is not read.
    #[error("this is {what}; {remedy} (--raw takes any file as plain bytes)")]
    Container {
        /// The kind of file.
        what: &'static str,
        /// The remedy.
        remedy: &'static str,
    },
    /// An unsupported element type.
    #[error("unknown dtype {0:?}; known are {list}", list = Dtype::names())]
    Dtype(String),
    /// A type of which NumPy knows only the size.
    #[error("NumPy stored the elements as plain bytes ({0:?}); name their type, of that size, such as bf16")]
    Void(String),
    /// The header needs another number of bytes than there are.
    #[error("shape {shape:?} of {dtype} needs {needed} bytes, but the file has {found} for it")]
    Shape {
        /// The shape in the header.
        shape: Vec<u64>,
        /// The element type in the header.
        dtype: Dtype,
        /// Bytes that shape and type need.
        needed: u64,
        /// Bytes of the file.
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
    /// Two arrays with the same name.
    #[error("the name {0:?} appears twice")]
    Duplicate(String),
    /// A compressed member that inflates beyond the limit.
    #[error(
        "its members inflate to {inflated} bytes, over the limit of {limit} bytes (1 GiB, or 32 times the file); \
         if you trust it, save the arrays uncompressed"
    )]
    Bomb {
        /// Bytes after decompression, as far as known.
        inflated: u64,
        /// The limit for this file.
        limit: u64,
    },
    /// Arrays that share bytes.
    #[error("not a valid {format} file: {first:?} and {second:?} lie over one another")]
    Overlap {
        /// The format of the file.
        format: &'static str,
        /// The array that begins first.
        first: String,
        /// The array that begins within it.
        second: String,
    },
    /// A member whose bytes are not those that were stored.
    #[error(
        "its bytes have the checksum {found:08x}, but {stated:08x} was stored with them: the file is damaged"
    )]
    Damaged {
        /// The archive's checksum.
        stated: u32,
        /// The checksum of the bytes.
        found: u32,
    },
    /// An inconsistent description of a run.
    #[error(transparent)]
    Run(#[from] buddy_record::RunError),
    /// A directory without `run.json` and without dumps.
    #[error("this directory is no run: it has neither run.json nor dumps of memory")]
    NoRun,
    /// Dumps both in the directory and in its subdirectories.
    #[error(
        "this directory has both files and directories; put each snapshot's dumps in snapshot-0, snapshot-1, ..., or say which \
         files count (--pattern)"
    )]
    MixedDumps,
    /// A directory among the snapshots that is not a snapshot.
    #[error(
        "the directory {0:?} is no snapshot; snapshots are named snapshot-0, snapshot-1, ... or by any one word and a number"
    )]
    Stray(String),
    /// An invalid pattern.
    #[error(
        "{0:?} is no pattern of names; it has {{name}} once, {{step}} at most once, as in '{{name}}_{{step}}.dat'"
    )]
    Pattern(String),
    /// A pattern that matches no file.
    #[error("the pattern fits no file of this directory")]
    NoMatch,
    /// A directory that another process writes to.
    #[error("another process is writing to this directory; wait for it, or give another one")]
    Claimed,
    /// A directory for a new run that is not empty.
    #[error("this directory is not empty; give a new one for a new run")]
    NotEmpty,
    /// A snapshot lacks an allocation.
    #[error("allocation {0:?} is missing from this snapshot")]
    Missing(String),
    /// A snapshot has an allocation that the run lacks.
    #[error("this snapshot has {0:?}, which is no allocation of the run")]
    Extra(String),
    /// An allocation's length differs from the run's.
    #[error("allocation {name:?} has {found} bytes in this snapshot; in the run it has {expected}")]
    Changed {
        /// Name of the allocation.
        name: String,
        /// Its length in the run.
        expected: u64,
        /// Its length in the snapshot.
        found: u64,
    },
    /// An allocation's type differs from the run's.
    #[error("allocation {name:?} is {found} in this snapshot; in the run it is {expected}")]
    Retyped {
        /// Name of the allocation.
        name: String,
        /// Its type in the run.
        expected: Dtype,
        /// Its type in the snapshot.
        found: Dtype,
    },
    /// The number of arrays differs from that of the allocations.
    #[error("{found} arrays were given for a snapshot of {expected} allocations")]
    Count {
        /// Allocations of the run.
        expected: usize,
        /// Arrays that were given.
        found: usize,
    },
    /// Not enough free space for a file.
    #[error("{needed} bytes are to be written, but only {free} are free")]
    NoSpace {
        /// Bytes to be written.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
}

impl Error {
    /// Prefixes the error with a place.
    #[must_use]
    pub fn at(self, place: impl std::fmt::Display) -> Self {
        // A name may contain line breaks; a message is one line.
        let place = place.to_string();
        let place = if place.contains(char::is_control) { format!("{place:?}") } else { place };
        Self::At { place, what: Box::new(self) }
    }

    /// Returns an error about a file's format.
    pub(crate) fn format(format: &'static str, why: impl Into<String>) -> Self {
        Self::Format { format, why: why.into() }
    }
}
