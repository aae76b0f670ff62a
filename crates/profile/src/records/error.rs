//! Errors of profiles, plans and target files.

use buddy_core::binary_size;
use buddy_record::{RecordError, RunError, TargetsError};

/// An error of a profile, a plan or a target file. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A snapshot of the run cannot be opened or mapped.
    #[error(transparent)]
    Snapshot(#[from] buddy_snapshot::Error),
    /// The file is not a record, or is a record of another kind or version.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The record is inconsistent.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The threshold is negative, or 1 or more.
    #[error("the threshold is {0}; it must be at least 0 (no overflow) and below 1 (100%)")]
    Threshold(f64),
    /// Targets by predicted slowdown lack a machine.
    #[error("targets by predicted slowdown need a GPU and a link")]
    NoLink,
    /// A codec name is unknown, or its parameters are invalid.
    #[error("allocation {name:?}: {what}")]
    Codec {
        /// The allocation whose row or record names the codec.
        name: String,
        /// Message of the codec's parser.
        what: String,
    },
    /// The record lacks the sizes of a codec.
    #[error("the run has no sizes of {codec} for allocation {name:?} in every snapshot")]
    NoSizes {
        /// Name of the requested codec.
        codec: String,
        /// The first allocation without its sizes.
        name: String,
    },
    /// The record does not have all pages.
    #[error(
        "targets for pages need the sizes of all pages, and this record has only some; profile the snapshots"
    )]
    NoPages,
    /// A file cannot be read or parsed.
    #[error("{path}: {what}")]
    File {
        /// Path as given by the caller.
        path: String,
        /// Description of the problem.
        what: String,
    },
    /// The access counts and the run have different allocations.
    #[error("the access counts and the run differ: only one of them has allocation {0:?}")]
    Accesses(String),
    /// The device memory is too small.
    #[error(
        "nothing fits {} of device memory: even with the largest targets everywhere the run needs {}, {} too much",
        binary_size(*memory), binary_size(*needed), binary_size(needed - memory)
    )]
    NothingFits {
        /// Bytes of device memory that the plan may use.
        memory: u64,
        /// Bytes of the smallest plan, metadata included.
        needed: u64,
    },
    /// The carve-out is too small.
    #[error(
        "nothing fits {} of device memory: its carve-out is three times as large, and the buddy slots \
         need {} of it, {} too much",
        binary_size(*memory), binary_size(*needed), binary_size(*over)
    )]
    CarveOut {
        /// Bytes of device memory; the carve-out is three times as large.
        memory: u64,
        /// Bytes of carve-out that the plan needs.
        needed: u64,
        /// Bytes by which `needed` exceeds the carve-out.
        over: u64,
    },
    /// The target table is inconsistent.
    #[error(transparent)]
    Targets(#[from] TargetsError),
    /// The working memory differs from the prediction.
    #[error("allocation {name:?}: {what} is {found} in the memory, but {predicted} was predicted")]
    Verify {
        /// The first allocation that differs.
        name: String,
        /// The compared count, such as `the s3 entries`.
        what: &'static str,
        /// Count predicted from the size classes.
        predicted: u64,
        /// Count in the memory.
        found: u64,
    },
    /// A read returned other bytes than were written.
    #[error("allocation {name:?}: a read returned other bytes than were written, from byte {offset} on")]
    ReadBack {
        /// The allocation read.
        name: String,
        /// Byte offset of the first piece that differs.
        offset: u64,
    },
    /// The working memory returned an error.
    #[error("allocation {name:?}: {what}")]
    Memory {
        /// The allocation being stored.
        name: String,
        /// Message of the memory.
        what: String,
    },
}
