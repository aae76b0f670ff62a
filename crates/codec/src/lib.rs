//! Lossless codecs for 128-byte memory-entries, exact to the bit (`docs/reference/format.md`).
//!
//! A codec turns an [`Entry`](buddy_core::Entry) into a bit stream and back, and says how many bits it needs
//! without writing them: [`EntryCodec`]. Whether an entry is stored as its stream, as nothing (all zeros) or as
//! itself (a stream over 96 bytes) is decided outside the stream, by its size class: [`Codec::pack`].
//!
//! [`CodecKind`] names a codec; [`CodecKind::train`] makes it ready for one allocation, since some codecs keep
//! a few parameters per allocation. [`Codec`] is the ready one, dispatched once per call.
//!
//! ```
//! use buddy_codec::{Codec, CodecKind, Packed};
//! use buddy_core::{Entry, SizeClass};
//!
//! let ramp: Entry = std::array::from_fn(|i| if i % 4 == 0 { i as u8 } else { 0 });
//! let codec = CodecKind::Bpc.train(&[ramp]);
//! let mut packed = Packed::default();
//! codec.pack(&ramp, &mut packed);
//! assert_eq!(packed.nibble().class(), SizeClass::B8);
//! assert_eq!(codec.unpack(packed.nibble(), packed.bytes())?, ramp);
//! # Ok::<(), buddy_codec::Error>(())
//! ```

mod batch;
mod bdi;
mod bits;
mod bpc;
mod codec;
mod cpack;
mod delta64;
mod fields;
mod float;
mod fpc;
mod frozen;
mod fvc;
mod kinds;
mod lanes;
mod near64;
mod parameters;
mod planes;
pub mod samples;
mod simd;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod text;
mod zeros;

pub use batch::BatchError;
pub use bdi::Bdi;
pub use bits::{STREAM_BYTES, Stream};
pub use bpc::{Bpc, reference::Reference as BpcReference};
pub use codec::{EntryCodec, Packed};
pub use cpack::Cpack;
pub use delta64::Delta64;
pub use fields::{Prefix, Rank, Scaled, Stride, Table};
pub use float::{Bf16, Fp16, Fp32};
pub use fpc::Fpc;
pub use frozen::{
    Frozen, FrozenHeader, FrozenParts, FrozenPiece, HEADER_BYTES as FROZEN_HEADER_BYTES, freeze,
};
pub use fvc::Fvc;
pub use kinds::{Codec, CodecKind};
pub use near64::Near64;
pub use planes::Planes;
pub use zeros::Zeros;

/// Why a stream is not one that the codec wrote, or a name not one of a codec.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The stream ends before the entry is complete.
    #[error("the stream ends at bit {bits}, before the entry is complete")]
    Truncated {
        /// Bits that were there.
        bits: usize,
    },
    /// A code that the format does not have.
    #[error("invalid code at bit {at}: {what}")]
    Invalid {
        /// Where the code begins.
        at: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A layout that the codec does not have.
    #[error("layout {0:?} is none of this codec's")]
    Layout(buddy_core::Layout),
    /// What a codec of this kind would not have learned.
    #[error("{0}")]
    Parameters(String),
    /// Fewer bytes than the size class says.
    #[error("{found} bytes are too few for an entry of class {class}")]
    Short {
        /// The class that was asked for.
        class: buddy_core::SizeClass,
        /// Bytes that were there.
        found: usize,
    },
    /// A table of frequent values that no code can number.
    #[error("a table of {values} values; it has at most 255, all different")]
    Table {
        /// How many values there were.
        values: usize,
    },
    /// Bytes that are no frozen buffer, or data that cannot become one.
    #[error("not a frozen buffer: {what}")]
    Frozen {
        /// What is wrong.
        what: &'static str,
    },
    /// No codec has this name.
    #[error("unknown codec '{name}'; the codecs are {known}")]
    Name {
        /// What was asked for.
        name: String,
        /// The names that there are, separated by commas.
        known: String,
    },
}

/// The README's examples, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
