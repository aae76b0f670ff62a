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
    #[error(transparent)]
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
        /// The field, and what is wrong with it.
        why: String,
    },
    /// A folder without a file of arrays.
    #[error(
        "this folder holds no file of arrays (.safetensors, .gguf, .pt, .npy, .npz, .h5, .nc); give raw dumps by name"
    )]
    NoArrayFiles,
    /// A shard that its index names and that is not there.
    #[error("the shard {0:?} is missing")]
    Shard(String),
    /// A file that is no dump of memory, and that is not read.
    #[error("this is {what}; {remedy} (--raw takes any file as plain bytes)")]
    Container {
        /// What the file is.
        what: &'static str,
        /// The command or the deed that helps.
        remedy: &'static str,
    },
    /// An element type that we do not read.
    #[error("unknown dtype {0:?}; known are {list}", list = Dtype::names())]
    Dtype(String),
    /// A type that NumPy knows only the size of.
    #[error("NumPy stored the elements as plain bytes ({0:?}); name their type, of that size, such as bf16")]
    Void(String),
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
    /// Members of an archive that share bytes.
    #[error("not a valid .npz file: its members {0:?} and {1:?} lie over one another")]
    Overlap(String, String),
    /// A member whose bytes are not those that were stored.
    #[error(
        "its bytes have the checksum {found:08x}, but {stated:08x} was stored with them: the file is damaged"
    )]
    Damaged {
        /// What the archive says.
        stated: u32,
        /// What the bytes give.
        found: u32,
    },
    /// A description of a run that contradicts itself.
    #[error(transparent)]
    Run(#[from] buddy_record::RunError),
    /// A directory without `run.json` and without dumps.
    #[error("this directory is no run: it has neither run.json nor dumps of memory")]
    NoRun,
    /// Dumps both in the directory and in directories below it.
    #[error(
        "this directory has both files and directories; put each snapshot's dumps in snapshot-0, snapshot-1, ..., or say which \
         files count (--pattern)"
    )]
    MixedDumps,
    /// A directory among the snapshots that is none.
    #[error(
        "the directory {0:?} is no snapshot; snapshots are named snapshot-0, snapshot-1, ... or by any one word and a number"
    )]
    Stray(String),
    /// A pattern that cannot be read.
    #[error(
        "{0:?} is no pattern of names; it has {{name}} once, {{step}} at most once, as in '{{name}}_{{step}}.dat'"
    )]
    Pattern(String),
    /// A pattern that fits no file.
    #[error("the pattern fits no file of this directory")]
    NoMatch,
    /// A directory that another process writes to.
    #[error("another process is writing to this directory; wait for it, or give another one")]
    Claimed,
    /// A directory for a new run that holds something.
    #[error("this directory is not empty; give a new one for a new run")]
    NotEmpty,
    /// A snapshot without one of the allocations.
    #[error("allocation {0:?} is missing from this snapshot")]
    Missing(String),
    /// A snapshot with an allocation that the run does not have.
    #[error("this snapshot has {0:?}, which is no allocation of the run")]
    Extra(String),
    /// An allocation whose length is another one than the run says.
    #[error("allocation {name:?} has {found} bytes in this snapshot; in the run it has {expected}")]
    Changed {
        /// Name of the allocation.
        name: String,
        /// Its length in the run.
        expected: u64,
        /// Its length in the snapshot.
        found: u64,
    },
    /// An allocation whose type is another one than the run says.
    #[error("allocation {name:?} is {found} in this snapshot; in the run it is {expected}")]
    Retyped {
        /// Name of the allocation.
        name: String,
        /// Its type in the run.
        expected: Dtype,
        /// Its type in the snapshot.
        found: Dtype,
    },
    /// Another number of arrays than the run has allocations.
    #[error("{found} arrays were given for a snapshot of {expected} allocations")]
    Count {
        /// Allocations of the run.
        expected: usize,
        /// Arrays that were given.
        found: usize,
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
