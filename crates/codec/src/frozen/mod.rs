//! Frozen buffers (`docs/reference/format.md`): data that will not change, packed once. What overflows is known then and lies compact
//! behind an index, so that one piece of memory holds all: no slots that stay empty, no second memory.

mod header;
mod piece;
#[cfg(test)]
mod tests;

use buddy_core::{ENTRIES_PER_PAGE, ENTRY_BYTES, Entry, Nibble, SECTOR_BYTES, Target, ZERO_ENTRY};
use header::refused;
pub use header::{FrozenHeader, FrozenParts, HEADER_BYTES};
pub use piece::FrozenPiece;

use crate::{Codec, Error, Packed};

/// A frozen buffer: bytes that were checked as far as their header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frozen<'a> {
    header: FrozenHeader,
    parts: FrozenParts,
    bytes: &'a [u8],
}

/// Sectors of an entry that do not fit its fixed place.
fn sectors_over(target: Target, nibble: Nibble) -> u32 {
    (target.split(nibble.class()).1 / SECTOR_BYTES) as u32
}

/// Word `k` of an entry of a matrix, as it is stored, is this word of the data: each quarter of a stored entry has a pair of values
/// of every eight, as a lane of a tensor core's product takes them.
fn word_at(k: usize) -> usize {
    k % 8 * 4 + k / 8
}

/// The entry of a matrix as it is stored.
fn to_stored(plain: &Entry) -> Entry {
    std::array::from_fn(|i| plain[4 * word_at(i / 4) + i % 4])
}

/// And back.
fn to_plain(stored: &Entry) -> Entry {
    let mut plain = ZERO_ENTRY;
    for (k, word) in stored.chunks(4).enumerate() {
        plain[4 * word_at(k)..][..4].copy_from_slice(word);
    }
    plain
}

/// Packs data into a frozen buffer; its last entry is filled up with zeros. `row` is 0, or, for a matrix, the entries of a row:
/// rows then lie in tiles of sixteen, and values as products want them.
///
/// # Errors
/// [`Error::Frozen`] for a codec with a table, for a matrix without whole rows, and for more than 2^32 - 1 sectors that overflow.
pub fn freeze(codec: &Codec, target: Target, row: u32, data: &[u8]) -> Result<Vec<u8>, Error> {
    let mut header = FrozenHeader { codec: codec.clone(), target, bytes: data.len() as u64, row, sectors: 0 };
    header.check_rows()?;
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
    u32::try_from(overflow.len() / SECTOR_BYTES).map_err(|_| refused("more than 2^32 - 1 sectors overflow"))
}

impl<'a> Frozen<'a> {
    /// Looks at a frozen buffer.
    ///
    /// # Errors
    /// [`Error::Frozen`] or [`Error::Name`] if the header is none, or if the buffer is not as long as it says. Nibbles,
    /// index and streams are not looked at: reading an entry does.
    pub fn open(bytes: &'a [u8]) -> Result<Self, Error> {
        let header = FrozenHeader::parse(bytes)?;
        let parts = header.parts();
        if bytes.len() as u64 != parts.total {
            return Err(refused("it is not as long as its header says"));
        }
        Ok(Self { header, parts, bytes })
    }

    /// Its header.
    pub fn header(&self) -> &FrozenHeader {
        &self.header
    }

    /// Reads one entry.
    ///
    /// # Errors
    /// Any bytes give an entry or an error.
    pub fn entry(&self, entry: u64) -> Result<Entry, Error> {
        if entry >= self.header.entries() {
            return Err(refused("there is no such entry"));
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

    /// Reads all of it.
    ///
    /// # Errors
    /// What the first entry says that cannot be read.
    pub fn read(&self) -> Result<Vec<u8>, Error> {
        let entries = (0..self.header.entries()).map(|entry| self.entry(entry));
        let mut out = entries.collect::<Result<Vec<Entry>, Error>>()?.into_flattened();
        out.truncate(self.header.bytes as usize);
        Ok(out)
    }

    fn nibble(&self, entry: u64) -> Result<Nibble, Error> {
        let byte = self.bytes[(self.parts.nibbles.start + entry / 2) as usize];
        Nibble::from_bits(byte >> (entry % 2 * 4) & 15).map_err(|_| refused("a nibble is reserved"))
    }

    /// The sectors of the pages before an entry's, and of the entries before it in its page.
    fn first_sector(&self, entry: u64) -> Result<u64, Error> {
        let page = entry / ENTRIES_PER_PAGE as u64;
        let before = self.sectors_before(page);
        let within = (page * ENTRIES_PER_PAGE as u64..entry).map(|other| {
            Ok(self.nibble(other).map_or(0, |nibble| u64::from(sectors_over(self.header.target, nibble))))
        });
        within.sum::<Result<u64, Error>>().map(|within| u64::from(before) + within)
    }

    /// What the index says of a page.
    fn sectors_before(&self, page: u64) -> u32 {
        let at = (self.parts.index.start + 4 * page) as usize;
        u32::from_le_bytes(*self.bytes[at..].first_chunk().expect("the index has every page"))
    }

    /// Bytes of the overflow from a sector on.
    fn sector(&self, first: u64, bytes: usize) -> Result<&[u8], Error> {
        if first + bytes.div_ceil(SECTOR_BYTES) as u64 > u64::from(self.header.sectors) {
            return Err(refused("the index names a sector that is not there"));
        }
        let at = self.parts.overflow.start + first * SECTOR_BYTES as u64;
        Ok(&self.bytes[at as usize..][..bytes])
    }
}
