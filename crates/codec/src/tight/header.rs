//! Header and parts of a tight matrix, and its checksum.

use std::ops::Range;

use buddy_core::ENTRY_BYTES;
use rayon::prelude::*;
use twox_hash::XxHash3_128;

use super::{COLUMN_BYTES, LANES};
use crate::{Error, FROZEN_HEADER_BYTES as HEADER_BYTES};

/// Magic bytes, those of every frozen buffer, and the version that says it is a tight matrix.
const MAGIC: [u8; 8] = *b"BUDDYFZ\0";
const VERSION: u32 = 4;
const NAME: [u8; 16] = *b"bf16-tight\0\0\0\0\0\0";
/// Rows of a tile.
pub(super) const TILE_ROWS: usize = 16;
/// Position of the checksum, and the bytes of a chunk.
const CHECKSUM: Range<usize> = 112..128;
const CHUNK: usize = 64 << 10;

/// Header of a tight matrix; determines all sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TightHeader {
    /// Bytes of the plain matrix: whole rows.
    pub bytes: u64,
    /// Entries of a row, 64 values each.
    pub row: u32,
    /// Extra words, two bytes each.
    pub words: u32,
}

/// Byte ranges of the parts of a tight matrix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TightParts {
    /// Columns of sixteen rows: low bytes, codes and signs.
    pub columns: Range<u64>,
    /// Two words of flags for each column.
    pub flags: Range<u64>,
    /// Extra words before each pair of columns, and the total.
    pub index: Range<u64>,
    /// Row bytes.
    pub rows: Range<u64>,
    /// Extra words.
    pub words: Range<u64>,
    /// Bytes of the whole matrix.
    pub total: u64,
}

impl TightHeader {
    /// Returns true if bytes begin like a tight matrix.
    pub fn is_tight(bytes: &[u8]) -> bool {
        bytes.len() >= HEADER_BYTES && bytes[..8] == MAGIC && bytes[8..12] == VERSION.to_le_bytes()
    }

    /// Returns the number of entries.
    pub fn entries(&self) -> u64 {
        self.bytes / ENTRY_BYTES as u64
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        self.entries() / u64::from(self.row).max(1)
    }

    /// Returns the number of tiles of sixteen rows; the last is padded with zeros.
    pub fn tiles(&self) -> u64 {
        self.rows().div_ceil(TILE_ROWS as u64)
    }

    /// Returns the pairs of columns of a tile; the last may have one.
    pub fn pairs(&self) -> u64 {
        u64::from(self.row).div_ceil(2)
    }

    /// Returns the byte ranges of the parts.
    pub fn parts(&self) -> TightParts {
        let mut at = HEADER_BYTES as u64;
        let mut part = |bytes: u64| {
            let start = at;
            at = (start + bytes).next_multiple_of(HEADER_BYTES as u64);
            start..start + bytes
        };
        let (tiles, columns) = (self.tiles(), self.tiles() * u64::from(self.row));
        let columns_part = part(columns * COLUMN_BYTES as u64);
        let flags = part(columns * (2 * LANES / 8) as u64);
        let index = part((tiles * self.pairs() + 1) * 4);
        let rows = part(tiles * TILE_ROWS as u64);
        let words = part(u64::from(self.words) * 2);
        TightParts { columns: columns_part, flags, index, rows, words, total: at }
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let row_bytes = u64::from(self.row) * ENTRY_BYTES as u64;
        if row_bytes == 0 || !self.bytes.is_multiple_of(row_bytes) {
            return Err(invalid("a matrix must have whole rows of whole entries"));
        }
        if self.entries() > u64::from(u32::MAX) {
            return Err(invalid("more than 2^32 - 1 entries"));
        }
        Ok(())
    }

    /// Encodes the header with a checksum; 0 is none.
    pub fn encode(&self, checksum: u128) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[16..32].copy_from_slice(&NAME);
        out[36..40].copy_from_slice(&self.row.to_le_bytes());
        out[40..48].copy_from_slice(&self.bytes.to_le_bytes());
        out[48..52].copy_from_slice(&self.words.to_le_bytes());
        out[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Parses a header.
    ///
    /// # Errors
    /// [`Error::Frozen`] for bytes that [`encode`](Self::encode) does not write.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        if !Self::is_tight(bytes) {
            return Err(invalid("not a tight matrix: no header of version 4"));
        }
        let word = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().expect("four bytes"));
        let length = u64::from(word(44)) << 32 | u64::from(word(40));
        let found = Self { bytes: length, row: word(36), words: word(48) };
        found.check()?;
        if found.encode(stored_checksum(bytes)) != bytes[..HEADER_BYTES] {
            return Err(invalid("a reserved field is not zero"));
        }
        Ok(found)
    }
}

/// Returns the checksum field of a header.
pub(super) fn stored_checksum(bytes: &[u8]) -> u128 {
    u128::from_le_bytes(*bytes[CHECKSUM].first_chunk().expect("sixteen bytes"))
}

/// Returns the checksum of a whole matrix: of the header and of the checksums of its chunks. Never
/// 0, which means that there is none.
pub(super) fn checksum(header: &TightHeader, bytes: &[u8]) -> u128 {
    let hash = |chunk: &[u8]| XxHash3_128::oneshot(chunk).to_le_bytes();
    let chunks: Vec<[u8; 16]> = bytes[HEADER_BYTES..].par_chunks(CHUNK).map(hash).collect();
    let head = header.encode(0);
    XxHash3_128::oneshot(&[&head[..CHECKSUM.start], chunks.as_flattened()].concat()).max(1)
}

pub(super) fn invalid(what: &'static str) -> Error {
    Error::Frozen { what }
}
