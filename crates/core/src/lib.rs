//! Shared types of Buddy Compression, in the paper's terms.
//!
//! GPU memory is divided into 128-byte [entries](Entry) of four 32-byte sectors. Each entry
//! compresses to a [`SizeClass`]. The [`Target`] of its allocation fixes the bytes of every entry
//! in device memory. An [`Extent`] maps an entry to its device bytes, its buddy slot and its
//! metadata nibble.

#![forbid(unsafe_code)]

mod blocks;
mod checksum;
mod class;
mod conservative;
mod digest;
mod dtype;
mod entry;
mod histogram;
mod map;
mod pages;
mod phase;
mod target;
mod targets;
mod text;

pub use blocks::Blocks;
pub use checksum::checksum;
pub use class::{Layout, Nibble, SizeClass, optimistic_bytes};
pub use conservative::{
    conservative_target, or_uncompressed, stays_mostly_zero, stays_small, worst_overflow,
};
pub use digest::digest;
pub use dtype::Dtype;
pub use entry::{
    ENTRIES_PER_PAGE, ENTRY_BITS, ENTRY_BYTES, Entry, PAGE_BYTES, SECTOR_BYTES, ZERO_ENTRY, as_entries,
    is_zero, last_entry, words16, words32, words64,
};
pub use histogram::Histogram;
pub use map::{Extent, Location, NibbleLocation, Span};
pub use pages::PageMap;
pub use phase::{PhaseChange, PhasePlan, PhaseSnapshot};
pub use target::Target;
pub use targets::{RangesError, TargetRange, Targets};
pub use text::{binary_size, parse_share, read_text, visible};

/// Errors of parsing and address mapping.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A reserved or out-of-range metadata nibble.
    #[error("nibble {0:#x} names no size class; valid nibbles are 0 to 7")]
    Nibble(u8),
    /// An unknown target ratio.
    #[error("unknown target '{0}'; the targets are 1x, 4/3x, 2x, 4x, 16x and uncompressed")]
    Target(String),
    /// An unknown element type.
    #[error("unknown dtype '{0}'; use one of {list}", list = Dtype::names())]
    Dtype(String),
    /// An entry past the end of its extent.
    #[error("entry {entry} is out of range: the extent has {entries} entries")]
    OutOfRange {
        /// The requested entry.
        entry: u64,
        /// Number of entries in the extent.
        entries: u64,
    },
}
