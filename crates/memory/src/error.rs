//! Why a memory refuses. Whatever the error, the memory is as it was before the call.

use buddy_core::Target;

use crate::Handle;

/// Why a memory refuses. The memory is then as it was before the call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A field of a spec that cannot be.
    #[error("{field}: {what}")]
    Spec {
        /// The field of the spec.
        field: &'static str,
        /// What is wrong with it, and what would be right.
        what: String,
    },
    /// The machine we run on has no room for the modelled memories.
    #[error("this machine cannot provide {bytes} bytes for the modelled memory")]
    Host {
        /// Bytes that the request asks for.
        bytes: u64,
    },
    /// An allocation of nothing.
    #[error("an allocation needs at least one byte")]
    ZeroLength,
    /// An allocation longer than everything the memory could hold.
    #[error("{bytes} bytes are more than this memory can ever hold, {capacity} bytes")]
    TooLong {
        /// Bytes that the request asks for.
        bytes: u64,
        /// Bytes of data that the memory can hold at its largest target.
        capacity: u64,
    },
    /// Page ranges that are not the allocation's pages.
    #[error("the targets do not fit the allocation's pages of {page_bytes} bytes: {why}")]
    Ranges {
        /// Bytes of a page of this memory.
        page_bytes: u64,
        /// What does not add up.
        why: buddy_core::RangesError,
    },
    /// A target that the carve-out was not made for.
    #[error("target {target} is above {largest}, the largest that the carve-out is made for")]
    TargetTooLarge {
        /// The target asked for.
        target: Target,
        /// The largest of this memory; 16x is admitted beside it while the carve-out has room.
        largest: Target,
    },
    /// No free run of device memory is long enough.
    #[error("device memory exhausted: {needed} bytes in a row needed, {largest} free ({free} in all)")]
    DeviceExhausted {
        /// Bytes needed in one run.
        needed: u64,
        /// The longest free run.
        largest: u64,
        /// Free bytes in all.
        free: u64,
    },
    /// No free run of the carve-out is long enough.
    #[error("carve-out exhausted: {needed} bytes in a row needed, {largest} free ({free} in all)")]
    CarveOutExhausted {
        /// Bytes needed in one run.
        needed: u64,
        /// The longest free run.
        largest: u64,
        /// Free bytes in all.
        free: u64,
    },
    /// No free run of pages, and of the metadata that goes with them, is long enough.
    #[error("pages exhausted: {needed} in a row needed, {largest} free ({free} in all)")]
    PagesExhausted {
        /// Pages needed in one run.
        needed: u64,
        /// The longest free run.
        largest: u64,
        /// Free pages in all.
        free: u64,
    },
    /// The handle's allocation has been freed.
    #[error("allocation {0} has been freed")]
    Freed(Handle),
    /// The handle is not one that this memory gave out.
    #[error("this memory has no allocation {0}")]
    Unknown(Handle),
    /// The allocation, or a range of it, is or would be stored as it is: a retarget copies what is stored, and would
    /// have to compress or decompress it.
    #[error(
        "a retarget of allocation {0} cannot begin or end with pages that are not compressed; allocate it anew"
    )]
    NotCompressed(Handle),
    /// Bytes past the end of an allocation.
    #[error("{len} bytes at offset {offset} are out of range: the allocation has {bytes} bytes")]
    OutOfRange {
        /// First byte asked for.
        offset: u64,
        /// Bytes of the read or write.
        len: u64,
        /// How many there are.
        bytes: u64,
    },
    /// The codec cannot rebuild an entry from what is stored.
    #[error("the entry at offset {offset} cannot be decompressed: {source}")]
    Codec {
        /// Where the entry begins in its allocation.
        offset: u64,
        /// What the codec says.
        source: buddy_codec::Error,
    },
    /// The metadata of an entry is none.
    #[error("the entry at offset {offset} has no valid metadata: {source}")]
    Metadata {
        /// Where the entry begins in its allocation.
        offset: u64,
        /// What is wrong with it.
        source: buddy_core::Error,
    },
    /// A page-table entry that cannot be packed, or unpacked.
    #[error("page-table entry: {field} {value:#x} is not below {limit:#x}")]
    PageEntry {
        /// The field of the page-table entry.
        field: &'static str,
        /// The value that does not fit it.
        value: u64,
        /// The first value that is too large.
        limit: u64,
    },
}
