//! Frozen buffers (`docs/reference/format.md`): read-only data, packed once. Overflow sectors are
//! stored contiguously behind an index, so one buffer holds everything, without empty slots or a
//! second memory.

mod checksum;
mod header;
mod piece;
#[cfg(test)]
mod tests;

use buddy_core::{ENTRIES_PER_PAGE, ENTRY_BYTES, Entry, Nibble, SECTOR_BYTES, Target, ZERO_ENTRY};
pub use checksum::seal;
use header::invalid;
pub use header::{FrozenHeader, FrozenParts, HEADER_BYTES};
pub use piece::FrozenPiece;

use crate::{Codec, Error, Packed};

/// A view of a frozen buffer whose header and length were checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frozen<'a> {
    header: FrozenHeader,
    parts: FrozenParts,
    bytes: &'a [u8],
}

/// Returns the overflow sectors of an entry.
fn overflow_sectors(target: Target, nibble: Nibble) -> u32 {
    (target.split(nibble.class()).1 / SECTOR_BYTES) as u32
}

/// Returns the source word of stored word `k` in a matrix entry. Each quarter of a stored entry
/// holds a pair of values from every eight, in the operand order of a tensor-core MMA lane.
fn source_word(k: usize) -> usize {
    k % 8 * 4 + k / 8
}

/// Permutes an entry of a matrix to stored order.
fn to_stored(plain: &Entry) -> Entry {
    std::array::from_fn(|i| plain[4 * source_word(i / 4) + i % 4])
}

/// Inverts [`to_stored`].
fn to_plain(stored: &Entry) -> Entry {
    let mut plain = ZERO_ENTRY;
    for (k, word) in stored.chunks(4).enumerate() {
        plain[4 * source_word(k)..][..4].copy_from_slice(word);
    }
    plain
}

/// Packs data into a frozen buffer; the last entry is zero-padded. `row` is 0, or the entries per
/// row of a matrix, which is stored in tiles of sixteen rows.
///
/// # Errors
/// [`Error::Frozen`] for a codec with a table, an uncompressed target, a matrix without whole rows,
/// or more than 2^32 - 1 overflow sectors.
pub fn freeze(codec: &Codec, target: Target, row: u32, data: &[u8]) -> Result<Vec<u8>, Error> {
    let mut header = FrozenHeader { codec: codec.clone(), target, bytes: data.len() as u64, row, sectors: 0 };
    header.check_rows()?;
    header.encode()?; // rejects the codec or target before any work
    let places = header.pages() as usize * ENTRIES_PER_PAGE;
    let mut entries = vec![ZERO_ENTRY; places];
    for (i, part) in data.chunks(ENTRY_BYTES).enumerate() {
        entries[header.slot_of(i as u64) as usize][..part.len()].copy_from_slice(part);
    }
    if row != 0 {
        entries.iter_mut().for_each(|entry| *entry = to_stored(entry));
    }
    let (mut device, mut nibbles) = (vec![0; places * target.device_bytes()], vec![0; places / 2]);
    let (mut index, mut overflow, mut packed) = (Vec::new(), Vec::new(), Packed::default());
    for (i, (entry, place)) in entries.iter().zip(device.chunks_mut(target.device_bytes())).enumerate() {
        if i.is_multiple_of(ENTRIES_PER_PAGE) {
            index.extend(sectors(&overflow)?.to_le_bytes());
        }
        codec.pack(entry, &mut packed);
        let (here, there) = packed.bytes().split_at(target.split(packed.nibble().class()).0);
        place[..here.len()].copy_from_slice(here);
        overflow.extend(there);
        nibbles[i / 2] |= packed.nibble().bits() << (i % 2 * 4);
    }
    header.sectors = sectors(&overflow)?;
    index.extend(header.sectors.to_le_bytes());
    let parts = header.parts();
    let mut out = header.encode()?.to_vec();
    for (at, part) in
        [(parts.device, device), (parts.nibbles, nibbles), (parts.index, index), (parts.overflow, overflow)]
    {
        out.resize(at.start as usize, 0);
        out.extend(part);
    }
    out.resize(parts.total as usize, 0);
    Ok(out)
}

fn sectors(overflow: &[u8]) -> Result<u32, Error> {
    u32::try_from(overflow.len() / SECTOR_BYTES).map_err(|_| invalid("more than 2^32 - 1 sectors overflow"))
}

impl<'a> Frozen<'a> {
    /// Opens a frozen buffer.
    ///
    /// # Errors
    /// [`Error::Frozen`] or [`Error::Name`] if the header is invalid or the length does not match.
    /// Nibbles, index and streams are checked when entries are read.
    pub fn open(bytes: &'a [u8]) -> Result<Self, Error> {
        let header = FrozenHeader::parse(bytes)?;
        let parts = header.parts();
        if bytes.len() as u64 != parts.total {
            return Err(invalid("length does not match its header"));
        }
        Ok(Self { header, parts, bytes })
    }

    /// Returns the header.
    pub fn header(&self) -> &FrozenHeader {
        &self.header
    }

    /// Reads one entry.
    ///
    /// # Errors
    /// If the entry is out of range or invalid. Never panics.
    pub fn entry(&self, entry: u64) -> Result<Entry, Error> {
        if entry >= self.header.entries() {
            return Err(invalid("entry out of range"));
        }
        let entry = self.header.slot_of(entry);
        let nibble = self.nibble(entry)?;
        let (here, there) = self.header.target.split(nibble.class());
        let mut stored = ZERO_ENTRY;
        let at = self.parts.device.start + entry * self.header.target.device_bytes() as u64;
        stored[..here].copy_from_slice(&self.bytes[at as usize..][..here]);
        if there > 0 {
            let first = self.first_sector(entry)?;
            stored[here..here + there].copy_from_slice(self.sector(first, there)?);
        }
        let entry = self.header.codec.unpack(nibble, &stored)?;
        Ok(if self.header.row == 0 { entry } else { to_plain(&entry) })
    }

    /// Reads the whole buffer.
    ///
    /// # Errors
    /// The error of the first invalid entry.
    pub fn read(&self) -> Result<Vec<u8>, Error> {
        let entries = (0..self.header.entries()).map(|entry| self.entry(entry));
        let mut out = entries.collect::<Result<Vec<Entry>, Error>>()?.into_flattened();
        out.truncate(self.header.bytes as usize);
        Ok(out)
    }

    fn nibble(&self, entry: u64) -> Result<Nibble, Error> {
        let byte = self.bytes[(self.parts.nibbles.start + entry / 2) as usize];
        Nibble::from_bits(byte >> (entry % 2 * 4) & 15).map_err(|_| invalid("reserved nibble"))
    }

    /// Returns the first overflow sector of an entry.
    fn first_sector(&self, entry: u64) -> Result<u64, Error> {
        let page = entry / ENTRIES_PER_PAGE as u64;
        let before = self.sectors_before(page);
        let within = (page * ENTRIES_PER_PAGE as u64..entry).map(|other| {
            Ok(self.nibble(other).map_or(0, |nibble| u64::from(overflow_sectors(self.header.target, nibble))))
        });
        within.sum::<Result<u64, Error>>().map(|within| u64::from(before) + within)
    }

    /// Returns the index value of a page.
    fn sectors_before(&self, page: u64) -> u32 {
        let at = (self.parts.index.start + 4 * page) as usize;
        u32::from_le_bytes(*self.bytes[at..].first_chunk().expect("the index covers every page"))
    }

    /// Returns overflow bytes from sector `first` on.
    fn sector(&self, first: u64, bytes: usize) -> Result<&[u8], Error> {
        if first + bytes.div_ceil(SECTOR_BYTES) as u64 > u64::from(self.header.sectors) {
            return Err(invalid("the index names a sector out of range"));
        }
        let at = self.parts.overflow.start + first * SECTOR_BYTES as u64;
        Ok(&self.bytes[at as usize..][..bytes])
    }
}
