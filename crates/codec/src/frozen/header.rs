//! The header of a frozen buffer, and where its parts lie.

use std::ops::Range;

use buddy_core::{ENTRIES_PER_PAGE, ENTRY_BYTES, SECTOR_BYTES, Target};

use crate::{Bf16, Codec, CodecKind, Error};

/// The first bytes of every frozen buffer.
const MAGIC: [u8; 8] = *b"BUDDYFZ\0";
/// The version of the format that we write.
const VERSION: u32 = 2;
/// The version before, which had the words of a matrix in another order; all else was the same.
const BEFORE: u32 = 1;
/// Bytes of the header; every part begins at a multiple of it.
pub const HEADER_BYTES: usize = 128;
/// Rows of a matrix that lie together.
pub(super) const TILE_ROWS: u64 = 16;
/// Room for the codec's name.
const NAME: Range<usize> = 16..32;

/// What a frozen buffer says of itself: all sizes follow from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrozenHeader {
    /// How entries are coded.
    pub codec: Codec,
    /// How many bytes of each entry lie in its fixed place.
    pub target: Target,
    /// Bytes of the data; the last entry may be cut short.
    pub bytes: u64,
    /// For a matrix, the entries of a row: rows lie in tiles of sixteen. 0 if entries lie in their order.
    pub row: u32,
    /// Sectors that overflow, in all.
    pub sectors: u32,
}

/// Where the parts of a frozen buffer lie, in bytes from its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrozenParts {
    /// The fixed places of the entries.
    pub device: Range<u64>,
    /// Four bits for each entry.
    pub nibbles: Range<u64>,
    /// For each page the sectors before it, and at the end all.
    pub index: Range<u64>,
    /// The sectors that overflow.
    pub overflow: Range<u64>,
    /// Bytes of the whole.
    pub total: u64,
}

impl FrozenHeader {
    /// How many entries.
    pub fn entries(&self) -> u64 {
        self.bytes.div_ceil(ENTRY_BYTES as u64)
    }

    /// How many places there are for entries: one for each, and those that fill up the last tile of a matrix.
    pub fn slots(&self) -> u64 {
        let tile = TILE_ROWS * u64::from(self.row).max(1);
        if self.row == 0 { self.entries() } else { self.entries().next_multiple_of(tile) }
    }

    /// The place of an entry.
    pub fn slot_of(&self, entry: u64) -> u64 {
        match u64::from(self.row) {
            0 => entry,
            row => {
                let (at, column) = (entry / row, entry % row);
                (at / TILE_ROWS * row + column) * TILE_ROWS + at % TILE_ROWS
            }
        }
    }

    /// How many pages of 64 places; the last is filled up with zeros.
    pub fn pages(&self) -> u64 {
        self.slots().div_ceil(ENTRIES_PER_PAGE as u64)
    }

    /// Where the parts lie.
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

    /// A matrix has whole rows.
    pub(super) fn check_rows(&self) -> Result<(), Error> {
        let row_bytes = u64::from(self.row) * ENTRY_BYTES as u64;
        if row_bytes != 0 && !self.bytes.is_multiple_of(row_bytes) {
            return Err(refused("a matrix has whole rows of whole entries"));
        }
        Ok(())
    }

    /// The header's bytes.
    ///
    /// # Errors
    /// [`Error::Frozen`] for a codec with a table, which has no room here, and for a target that does not compress.
    pub fn encode(&self) -> Result<[u8; HEADER_BYTES], Error> {
        let window = match &self.codec {
            Codec::Bf16(bf16) => u32::from(bf16.window()),
            other if other.kind().learns() => {
                return Err(refused("a codec with parameters cannot be frozen; take another codec"));
            }
            _ => 0,
        };
        let target = Target::ALL.iter().position(|&target| target == self.target);
        let target = target.ok_or_else(|| refused("memory that is not compressed has no target"))? as u32;
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

    /// Reads a header.
    ///
    /// # Errors
    /// [`Error::Frozen`] for any bytes that [`encode`](Self::encode) does not write, [`Error::Name`] for a codec that is
    /// not known.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let header: &[u8; HEADER_BYTES] =
            bytes.first_chunk().ok_or_else(|| refused("it is shorter than its header of 128 bytes"))?;
        let word =
            |at: usize| u32::from_le_bytes(*header[at..].first_chunk().expect("four bytes of the header"));
        if header[..8] != MAGIC {
            return Err(refused("it does not begin with BUDDYFZ"));
        }
        match (word(8), word(36)) {
            (VERSION, _) | (BEFORE, 0) => {}
            (BEFORE, _) => return Err(refused("it is a matrix of version 1; pack the data again")),
            _ => return Err(refused("its version is none of 1 and 2")),
        }
        let target = Target::ALL
            .get(word(12) as usize)
            .copied()
            .ok_or_else(|| refused("its target is none of 0 to 4"))?;
        let length = u64::from_le_bytes(*header[40..].first_chunk().expect("eight bytes of the header"));
        if length > u64::from(u32::MAX) * ENTRY_BYTES as u64 {
            return Err(refused("it has more than 2^32 - 1 entries"));
        }
        let (row, sectors) = (word(36), word(48));
        let found = Self { codec: codec(&header[NAME], word(32))?, target, bytes: length, row, sectors };
        found.check_rows()?;
        let mut expected = found.encode()?;
        expected[8..12].copy_from_slice(&header[8..12]);
        if expected != *header {
            return Err(refused("a field that is not used is not zero"));
        }
        Ok(found)
    }
}

/// The codec of a name, padded with zeros, and of a window.
fn codec(name: &[u8], window: u32) -> Result<Codec, Error> {
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    let kind: CodecKind = String::from_utf8_lossy(&name[..end]).parse()?;
    if kind != CodecKind::Bf16 {
        return Ok(kind.train(&[]));
    }
    let window = u8::try_from(window).ok().and_then(|window| Bf16::new(window).ok());
    window.map(Codec::Bf16).ok_or_else(|| refused("its window is above 240"))
}

pub(super) fn refused(what: &'static str) -> Error {
    Error::Frozen { what }
}
