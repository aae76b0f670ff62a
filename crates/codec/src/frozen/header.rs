//! Header and section offsets of a frozen buffer.

use std::ops::Range;

use buddy_core::{ENTRIES_PER_PAGE, ENTRY_BYTES, SECTOR_BYTES, Target};

use crate::{Bf16, Codec, CodecKind, Error};

/// Magic bytes of every frozen buffer.
const MAGIC: [u8; 8] = *b"BUDDYFZ\0";
/// Format version that [`FrozenHeader::encode`] writes.
const VERSION: u32 = 2;
/// The same with a checksum.
pub(super) const SEALED: u32 = 3;
/// The previous version, which differs only in the word order of matrices.
const VERSION_1: u32 = 1;
/// Bytes of the header; every section is aligned to it.
pub const HEADER_BYTES: usize = 128;
/// Rows per tile of a matrix.
pub(super) const TILE_ROWS: u64 = 16;
/// Position of the version.
pub(super) const VERSION_FIELD: Range<usize> = 8..12;
/// Position of the checksum of a sealed buffer.
pub(super) const CHECKSUM: Range<usize> = 112..128;
/// Position of the codec's name.
const NAME: Range<usize> = 16..32;

/// Header of a frozen buffer; determines all sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrozenHeader {
    /// Codec of all entries.
    pub codec: Codec,
    /// Target, which fixes the device bytes per entry.
    pub target: Target,
    /// Bytes of the data; the last entry may be partial.
    pub bytes: u64,
    /// Entries per row of a matrix, stored in tiles of sixteen rows; 0 for data in entry order.
    pub row: u32,
    /// Total number of overflow sectors.
    pub sectors: u32,
}

/// Byte ranges of the sections of a frozen buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrozenParts {
    /// Fixed slots of the entries.
    pub device: Range<u64>,
    /// Metadata nibbles.
    pub nibbles: Range<u64>,
    /// Overflow sectors before each page, and the total.
    pub index: Range<u64>,
    /// Overflow sectors.
    pub overflow: Range<u64>,
    /// Bytes of the whole buffer.
    pub total: u64,
}

impl FrozenHeader {
    /// The most bytes of data: 2^32 - 1 entries. Sizes of more are not computed.
    pub const MOST_BYTES: u64 = u32::MAX as u64 * ENTRY_BYTES as u64;

    /// Returns the number of entries.
    pub fn entries(&self) -> u64 {
        self.bytes.div_ceil(ENTRY_BYTES as u64)
    }

    /// Returns the number of slots: one per entry, plus those that pad the last tile of a matrix.
    pub fn slots(&self) -> u64 {
        let tile = TILE_ROWS * u64::from(self.row).max(1);
        if self.row == 0 { self.entries() } else { self.entries().next_multiple_of(tile) }
    }

    /// Returns the slot of an entry.
    pub fn slot_of(&self, entry: u64) -> u64 {
        match u64::from(self.row) {
            0 => entry,
            row => {
                let (at, column) = (entry / row, entry % row);
                (at / TILE_ROWS * row + column) * TILE_ROWS + at % TILE_ROWS
            }
        }
    }

    /// Returns the number of pages of 64 slots; the last page is zero-padded.
    pub fn pages(&self) -> u64 {
        self.slots().div_ceil(ENTRIES_PER_PAGE as u64)
    }

    /// Returns the byte ranges of the sections.
    pub fn parts(&self) -> FrozenParts {
        let mut at = HEADER_BYTES as u64;
        let mut part = |bytes: u64| {
            let start = at;
            at = (start + bytes).next_multiple_of(HEADER_BYTES as u64);
            start..start + bytes
        };
        let (pages, page) = (self.pages(), ENTRIES_PER_PAGE as u64);
        let device = part(pages * page * self.target.device_bytes() as u64);
        let nibbles = part(pages * page / 2);
        let index = part((pages + 1) * 4);
        let overflow = part(u64::from(self.sectors) * SECTOR_BYTES as u64);
        FrozenParts { device, nibbles, index, overflow, total: at }
    }

    /// Checks that a matrix has whole rows.
    pub(super) fn check_rows(&self) -> Result<(), Error> {
        let row_bytes = u64::from(self.row) * ENTRY_BYTES as u64;
        if row_bytes != 0 && !self.bytes.is_multiple_of(row_bytes) {
            return Err(invalid("a matrix must have whole rows of whole entries"));
        }
        Ok(())
    }

    /// Encodes the header.
    ///
    /// # Errors
    /// [`Error::Frozen`] for a codec with a table, which the header cannot hold, and for an
    /// uncompressed target.
    pub fn encode(&self) -> Result<[u8; HEADER_BYTES], Error> {
        let window = match &self.codec {
            Codec::Bf16(bf16) => u32::from(bf16.window()),
            other if other.kind().has_parameters() => {
                return Err(invalid("codecs with parameters cannot be frozen; use another codec"));
            }
            _ => 0,
        };
        let target = Target::ALL.iter().position(|&target| target == self.target);
        let target = target.ok_or_else(|| invalid("uncompressed memory has no target"))? as u32;
        let mut out = [0; HEADER_BYTES];
        let name = self.codec.kind().name().as_bytes();
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&target.to_le_bytes());
        out[NAME][..name.len()].copy_from_slice(name);
        out[32..36].copy_from_slice(&window.to_le_bytes());
        out[36..40].copy_from_slice(&self.row.to_le_bytes());
        out[40..48].copy_from_slice(&self.bytes.to_le_bytes());
        out[48..52].copy_from_slice(&self.sectors.to_le_bytes());
        Ok(out)
    }

    /// Parses a header.
    ///
    /// # Errors
    /// [`Error::Frozen`] for bytes that [`encode`](Self::encode) does not write, [`Error::Name`]
    /// for an unknown codec.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let header: &[u8; HEADER_BYTES] =
            bytes.first_chunk().ok_or_else(|| invalid("shorter than its header of 128 bytes"))?;
        let word =
            |at: usize| u32::from_le_bytes(*header[at..].first_chunk().expect("four bytes of the header"));
        if header[..8] != MAGIC {
            return Err(invalid("does not begin with BUDDYFZ"));
        }
        match (word(8), word(36)) {
            (VERSION | SEALED, _) | (VERSION_1, 0) => {}
            (VERSION_1, _) => return Err(invalid("a matrix of version 1; pack the data again")),
            (4, _) => return Err(invalid("a tight matrix; `buddy unpack` gives the model back")),
            _ => return Err(invalid("unknown version; this library reads 1 to 4")),
        }
        let target = Target::ALL
            .get(word(12) as usize)
            .copied()
            .ok_or_else(|| invalid("unknown target; valid targets are 0 to 4"))?;
        let length = u64::from_le_bytes(*header[40..].first_chunk().expect("eight bytes of the header"));
        if length > Self::MOST_BYTES {
            return Err(invalid("more than 2^32 - 1 entries"));
        }
        let (row, sectors) = (word(36), word(48));
        let found = Self { codec: codec(&header[NAME], word(32))?, target, bytes: length, row, sectors };
        found.check_rows()?;
        let mut expected = found.encode()?;
        expected[VERSION_FIELD].copy_from_slice(&header[VERSION_FIELD]);
        if word(8) == SEALED {
            expected[CHECKSUM].copy_from_slice(&header[CHECKSUM]);
        }
        if expected != *header {
            return Err(invalid("a reserved field is not zero"));
        }
        Ok(found)
    }
}

/// Returns the codec of a zero-padded name and a window.
fn codec(name: &[u8], window: u32) -> Result<Codec, Error> {
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    let kind: CodecKind = String::from_utf8_lossy(&name[..end]).parse()?;
    if kind != CodecKind::Bf16 {
        return Ok(kind.train(&[]));
    }
    let window = u8::try_from(window).ok().and_then(|window| Bf16::new(window).ok());
    window.map(Codec::Bf16).ok_or_else(|| invalid("exponent window above 240"))
}

pub(super) fn invalid(what: &'static str) -> Error {
    Error::Frozen { what }
}
