//! A functional Buddy memory: stores bytes compressed, at fixed locations.
//!
//! Implements the paper's architecture (section "Buddy Compression"). A [`BuddyMemory`] has a
//! device memory, a carve-out of a larger and slower buddy memory, and four bits of metadata per
//! 128-byte entry. An allocation has a codec and a target for each range of its pages. The target
//! alone determines where an entry is stored: its first bytes on the device, the rest in its buddy
//! slot. A change in compressibility changes how much of that space is used, never its location.
//!
//! ```
//! use buddy_codec::CodecKind;
//! use buddy_core::Target;
//! use buddy_memory::{BuddyMemory, Request, Spec};
//!
//! let memory = BuddyMemory::new(Spec::new(1 << 20))?;
//! let codec = CodecKind::Bpc.train(&[]);
//! let squares = memory.allocate(&Request::new(1 << 20, codec, Target::X2))?;
//! memory.write(squares, 1000, b"any range of bytes")?;
//!
//! let mut bytes = [0; 18];
//! memory.read(squares, 1000, &mut bytes)?;
//! assert_eq!(&bytes, b"any range of bytes");
//! assert_eq!(memory.report().total.ratio, Some(2.0));
//! memory.free(squares)?;
//! # Ok::<(), buddy_memory::Error>(())
//! ```
//!
//! [`PageEntry`] locates a page, [`buddy_core::Extent`] an entry in it, and [`MetadataCache`]
//! models metadata accesses. `docs/reference/format.md` specifies the bits. The feature `records`, on
//! by default, adds [`BuddyMemory::record`] and [`BuddyMemory::change`].

#![cfg_attr(not(loom), forbid(unsafe_code))]

mod access;
mod allocation;
mod cache;
mod cut;
mod error;
mod line;
mod memory;
mod page;
#[cfg(feature = "records")]
mod phases;
mod region;
mod report;
mod request;
mod retarget;
mod slots;
mod space;
mod spec;
mod sync;
mod traffic;

pub use allocation::Handle;
pub use cache::{CacheSpec, Hashing, MetadataCache, Outcome};
pub use error::Error;
pub use memory::BuddyMemory;
pub use page::PageEntry;
#[cfg(feature = "records")]
pub use phases::Changed;
pub use region::Region;
pub use report::{AllocationReport, MemoryReport, Usage};
pub use request::Request;
pub use retarget::Retargeted;
pub use space::{Free, FreeSpace};
pub use spec::Spec;
pub use traffic::Traffic;
