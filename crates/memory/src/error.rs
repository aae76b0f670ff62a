//! Errors of a memory. A failed call leaves the memory unchanged.

use buddy_core::Target;

use crate::Handle;

/// Errors of a memory. A failed call leaves the memory unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An invalid field of a spec.
    #[error("{field}: {what}")]
    Spec {
        /// Name of the field.
        field: &'static str,
        /// The defect and the valid range.
        what: String,
    },
    /// The host cannot allocate the modelled memories.
    #[error("the host cannot provide {bytes} bytes for the modelled memory")]
    Host {
        /// Requested bytes.
        bytes: u64,
    },
    /// An empty allocation.
    #[error("an allocation needs at least one byte")]
    ZeroLength,
    /// An allocation larger than the capacity.
    #[error("{bytes} bytes exceed the capacity of this memory, {capacity} bytes")]
    TooLong {
        /// Requested bytes.
        bytes: u64,
        /// Capacity at the largest target.
        capacity: u64,
    },
    /// Page ranges that do not cover the allocation.
    #[error("the targets do not fit the allocation's pages of {page_bytes} bytes: {why}")]
    Ranges {
        /// Page size.
        page_bytes: u64,
        /// The mismatch.
        why: buddy_core::RangesError,
    },
    /// A target above the limit of the carve-out.
    #[error("target {target} is above {largest}, the largest that the carve-out supports")]
    TargetTooLarge {
        /// Requested target.
        target: Target,
        /// Largest target of this memory; 16x is also admitted while the carve-out has space.
        largest: Target,
    },
    /// No free run of device memory is long enough.
    #[error("device memory exhausted: {needed} contiguous bytes needed, {largest} free ({free} in total)")]
    DeviceExhausted {
        /// Contiguous bytes needed.
        needed: u64,
        /// Longest free run.
        largest: u64,
        /// Total free bytes.
        free: u64,
    },
    /// No free run of the carve-out is long enough.
    #[error("carve-out exhausted: {needed} contiguous bytes needed, {largest} free ({free} in total)")]
    CarveOutExhausted {
        /// Contiguous bytes needed.
        needed: u64,
        /// Longest free run.
        largest: u64,
        /// Total free bytes.
        free: u64,
    },
    /// No free run of pages and their metadata is long enough.
    #[error("pages exhausted: {needed} contiguous pages needed, {largest} free ({free} in total)")]
    PagesExhausted {
        /// Contiguous pages needed.
        needed: u64,
        /// Longest free run.
        largest: u64,
        /// Total free pages.
        free: u64,
    },
    /// The allocation has been freed.
    #[error("allocation {0} has been freed")]
    Freed(Handle),
    /// The handle does not belong to this memory.
    #[error("this memory has no allocation {0}")]
    Unknown(Handle),
    /// A retarget from or to uncompressed pages. Retargets copy stored bytes and cannot compress or
    /// decompress them.
    #[error(
        "a retarget of allocation {0} cannot begin or end with pages that are not compressed; allocate it anew"
    )]
    NotCompressed(Handle),
    /// A range past the end of an allocation.
    #[error("{len} bytes at offset {offset} are out of range: the allocation has {bytes} bytes")]
    OutOfRange {
        /// First byte of the range.
        offset: u64,
        /// Length of the range.
        len: u64,
        /// Bytes of the allocation.
        bytes: u64,
    },
    /// The stored stream of an entry is invalid.
    #[error("the entry at offset {offset} cannot be decompressed: {source}")]
    Codec {
        /// Offset of the entry in its allocation.
        offset: u64,
        /// The codec's error.
        source: buddy_codec::Error,
    },
    /// The metadata of an entry is invalid.
    #[error("the entry at offset {offset} has no valid metadata: {source}")]
    Metadata {
        /// Offset of the entry in its allocation.
        offset: u64,
        /// The defect.
        source: buddy_core::Error,
    },
    /// A page-table entry that cannot be encoded or decoded.
    #[error("page-table entry: {field} {value:#x} is not below {limit:#x}")]
    PageEntry {
        /// Field of the page-table entry.
        field: &'static str,
        /// The value out of range.
        value: u64,
        /// Exclusive upper limit.
        limit: u64,
    },
}
