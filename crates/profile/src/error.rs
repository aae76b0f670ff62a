//! Why there is no profile.

use buddy_core::{RecordError, RunError, TargetsError, binary_size};

/// Why a run cannot be profiled, or a plan not be made. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A snapshot of the run cannot be opened or mapped.
    #[error(transparent)]
    Snapshot(#[from] buddy_snapshot::Error),
    /// A file that is no record, or one of another kind or version.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A record that contradicts itself.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A threshold that is no share.
    #[error("the threshold is {0}; it must lie between 0 and 1 (0% and 100%)")]
    Threshold(f64),
    /// A codec that this tool does not know, or parameters that are not its own.
    #[error("allocation {name:?}: {what}")]
    Codec {
        /// The allocation whose row or record names it.
        name: String,
        /// What the codec's parser said, in one line.
        what: String,
    },
    /// A record without the sizes of a codec.
    #[error("the run has no sizes of {codec} for allocation {name:?} in every snapshot")]
    NoSizes {
        /// The codec that was asked for, by name.
        codec: String,
        /// The first allocation that lacks it.
        name: String,
    },
    /// A record without all pages.
    #[error(
        "targets for pages need the sizes of all pages, and this record has only some; profile the snapshots"
    )]
    NoPages,
    /// A file that cannot be read, or is not what it should be.
    #[error("{path}: {what}")]
    File {
        /// The file, as it was named.
        path: String,
        /// What is wrong with it.
        what: String,
    },
    /// Counts of accesses for another program.
    #[error("the counts of accesses do not have allocation {0:?}, or have one that the run does not")]
    Accesses(String),
    /// Memory that is too small.
    #[error(
        "nothing fits {} of device memory: even with the largest targets everywhere the run needs {}, {} too much",
        binary_size(*memory), binary_size(*needed), binary_size(needed - memory)
    )]
    NothingFits {
        /// Bytes of device memory that the plan may use.
        memory: u64,
        /// Bytes that the smallest plan takes, metadata included.
        needed: u64,
    },
    /// A carve-out that is too small.
    #[error(
        "nothing fits {} of device memory: its carve-out is three times as large, and what does not lie on the device \
         needs {} of it, {} too much",
        binary_size(*memory), binary_size(*needed), binary_size(*over)
    )]
    CarveOut {
        /// Bytes of device memory, of which the carve-out is three times as many.
        memory: u64,
        /// Bytes of the carve-out that are needed.
        needed: u64,
        /// How many of them there are not.
        over: u64,
    },
    /// A table of targets that contradicts itself.
    #[error(transparent)]
    Targets(#[from] TargetsError),
    /// A prediction that the working memory does not confirm.
    #[error("allocation {name:?}: {what} is {found} in the memory, but {predicted} was predicted")]
    Verify {
        /// The first allocation that differs.
        name: String,
        /// The count that was compared, such as `the s3 entries`.
        what: &'static str,
        /// The count from the size classes.
        predicted: u64,
        /// What the memory has.
        found: u64,
    },
    /// A read that gave other bytes than were written.
    #[error(
        "allocation {name:?}: the memory gives back other bytes than were written, from byte {offset} on"
    )]
    ReadBack {
        /// The allocation that was read.
        name: String,
        /// Byte of the allocation at which the piece that differs begins.
        offset: u64,
    },
    /// The working memory refused.
    #[error("allocation {name:?}: {what}")]
    Memory {
        /// The allocation that it would not take.
        name: String,
        /// The memory's own message.
        what: String,
    },
}
