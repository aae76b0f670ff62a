//! Lossless codecs for 128-byte memory-entries (`docs/reference/format.md`).
//!
//! A codec encodes an [`Entry`](buddy_core::Entry) to a bit stream and decodes it, and computes the
//! size without encoding: [`EntryCodec`]. The size class, outside the stream, determines how an
//! entry is stored: as its stream, as nothing (all zeros) or raw (streams over 96 bytes):
//! [`Codec::pack`].
//!
//! [`CodecKind`] names a codec. [`CodecKind::train`] creates a [`Codec`] for one allocation, with
//! trained parameters where the codec has any.
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
mod csr;
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
mod tight;
mod zeros;

pub use batch::BatchError;
pub use bdi::Bdi;
pub use bits::{STREAM_BYTES, Stream};
pub use bpc::{
    Bpc, best::BpcBest, best::reference::Reference as BpcBestReference, reference::Reference as BpcReference,
};
pub use codec::{EntryCodec, Packed};
pub use cpack::Cpack;
pub use csr::{CSR_COLUMNS, Csr, CsrArrays, CsrJoin, CsrTile, Real, SEGMENT_ELEMENTS, TILE_SEGMENTS};
pub use delta64::Delta64;
pub use fields::{Prefix, Rank, Scaled, Stride, Table};
pub use float::{Bf16, Fp16, Fp32};
pub use fpc::Fpc;
pub use frozen::{
    Frozen, FrozenHeader, FrozenParts, FrozenPiece, HEADER_BYTES as FROZEN_HEADER_BYTES, freeze, seal,
};
pub use fvc::Fvc;
pub use kinds::{Codec, CodecKind};
pub use near64::Near64;
pub use planes::Planes;
pub use tight::{Tight, TightHeader, TightParts, tighten};
pub use zeros::Zeros;

/// Errors of decoding a stream or looking up a codec.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The stream ends before the entry is complete.
    #[error("the stream ends at bit {bits}, before the entry is complete")]
    Truncated {
        /// Bits in the stream.
        bits: usize,
    },
    /// A code that is not part of the format.
    #[error("invalid code at bit {at}: {what}")]
    Invalid {
        /// Bit position of the code.
        at: usize,
        /// The defect.
        what: &'static str,
    },
    /// A layout that the codec does not have.
    #[error("layout {0:?} is not a layout of this codec")]
    Layout(buddy_core::Layout),
    /// Invalid codec parameters.
    #[error("{0}")]
    Parameters(String),
    /// Fewer bytes than the size class says.
    #[error("{found} bytes are too few for an entry of class {class}")]
    Short {
        /// The expected class.
        class: buddy_core::SizeClass,
        /// Bytes available.
        found: usize,
    },
    /// An invalid table of frequent values.
    #[error("a table of {values} values; the limit is 255, all different")]
    Table {
        /// Number of values.
        values: usize,
    },
    /// Arrays that are no sparse matrix, or a product of other shape or type.
    #[error("{0}")]
    Csr(String),
    /// A sealed frozen buffer whose bytes changed.
    #[error("its bytes do not match its checksum: it was damaged")]
    Damaged,
    /// An invalid frozen buffer, or data that cannot be frozen.
    #[error("not a frozen buffer: {what}")]
    Frozen {
        /// The defect.
        what: &'static str,
    },
    /// An unknown codec name.
    #[error("unknown codec '{name}'; the codecs are {known}")]
    Name {
        /// The unknown name.
        name: String,
        /// Known names, comma-separated.
        known: String,
    },
}
