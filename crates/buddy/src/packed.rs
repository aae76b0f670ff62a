//! Compressed buffers.

use buddy_codec::{Codec, Error, Frozen, FrozenHeader, freeze};
use buddy_core::{Entry, Target};

use crate::{Options, choose::choose};

/// A compressed buffer in memory, with random access to its entries.
///
/// Its bytes are a frozen buffer of the format reference (`docs/reference/format.md`): a header, a
/// slot of fixed size per entry, four bits of metadata per entry, an index and the overflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    header: FrozenHeader,
    bytes: Vec<u8>,
}

/// Compresses a buffer.
///
/// Data that does not compress grows by 0.5% and up to 8 KiB of padding.
///
/// # Errors
/// [`Error::Frozen`] for a codec whose trained parameters the format cannot store, for
/// [`Target::Uncompressed`], and for data with more than 2^32 - 1 overflowing sectors.
pub fn compress(data: &[u8], options: Options) -> Result<Packed, Error> {
    let (codec, target) = choose(data, &options);
    Packed::from_bytes(freeze(&codec, target, 0, data)?)
}

impl Packed {
    /// Opens a buffer from the bytes of [`as_bytes`](Self::as_bytes) or
    /// [`into_bytes`](Self::into_bytes).
    ///
    /// # Errors
    /// [`Error::Frozen`] or [`Error::Name`] for an invalid header or length. Entries are checked
    /// when they are read.
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Result<Self, Error> {
        let bytes = bytes.into();
        let header = Frozen::open(&bytes)?.header().clone();
        Ok(Self { header, bytes })
    }

    /// Returns the packed bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Converts into the packed bytes without a copy.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Decompresses the whole buffer.
    ///
    /// # Errors
    /// The error of the first invalid entry, if the bytes were damaged. Never panics.
    pub fn decompress(&self) -> Result<Vec<u8>, Error> {
        let mut data = vec![0; self.header.bytes as usize];
        Frozen::open(&self.bytes)?.read_piece(0, &mut data)?;
        Ok(data)
    }

    /// Decompresses entry `index`: bytes `128 * index` to `128 * index + 127` of the data. The last
    /// entry is zero-padded.
    ///
    /// # Errors
    /// If the index is not below [`entries`](Self::entries), or the entry was damaged. Never
    /// panics.
    pub fn entry(&self, index: u64) -> Result<Entry, Error> {
        Frozen::open(&self.bytes)?.entry(index)
    }

    /// Returns the number of entries.
    pub fn entries(&self) -> u64 {
        self.header.entries()
    }

    /// Returns the bytes of the decompressed data.
    pub fn data_bytes(&self) -> u64 {
        self.header.bytes
    }

    /// Returns the bytes of the compressed buffer, header and metadata included.
    pub fn packed_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Returns the data bytes per packed byte.
    pub fn ratio(&self) -> f64 {
        self.data_bytes() as f64 / self.packed_bytes() as f64
    }

    /// Returns the codec with its parameters.
    pub fn codec(&self) -> &Codec {
        &self.header.codec
    }

    /// Returns the target, which fixes the slot size of an entry.
    pub fn target(&self) -> Target {
        self.header.target
    }
}
