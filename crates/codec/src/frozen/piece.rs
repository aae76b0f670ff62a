//! Pieces of a frozen buffer: whole pages packed and read in batches, so that large buffers can be
//! processed piece by piece on several threads.

use buddy_core::{
    ENTRIES_PER_PAGE, ENTRY_BYTES, Entry, Layout, Nibble, SECTOR_BYTES, SizeClass, Target, ZERO_ENTRY,
};

use super::{Frozen, FrozenHeader, header::invalid, overflow_sectors, to_plain, to_stored};
use crate::{Codec, Error};

/// Sections of some whole pages of a frozen buffer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FrozenPiece {
    /// Fixed slots of the entries.
    pub device: Vec<u8>,
    /// Metadata nibbles.
    pub nibbles: Vec<u8>,
    /// Overflow sectors per page.
    pub sectors: Vec<u32>,
    /// Overflow sectors.
    pub overflow: Vec<u8>,
}

impl FrozenPiece {
    /// Packs data that begins at a multiple of [`FrozenHeader::step`] entries and ends at one or at
    /// the end of the buffer.
    ///
    /// # Errors
    /// [`Error::Frozen`] for a matrix without whole rows.
    pub fn pack(codec: &Codec, target: Target, row: u32, data: &[u8]) -> Result<Self, Error> {
        let header = FrozenHeader { codec: codec.clone(), target, bytes: data.len() as u64, row, sectors: 0 };
        header.check_rows()?;
        let (pages, bytes) = (header.pages() as usize, target.device_bytes());
        let mut piece = Self {
            device: vec![0; pages * ENTRIES_PER_PAGE * bytes],
            nibbles: Vec::with_capacity(pages * ENTRIES_PER_PAGE / 2),
            sectors: Vec::with_capacity(pages),
            overflow: Vec::new(),
        };
        let mut page = Page::new();
        for (number, places) in piece.device.chunks_exact_mut(ENTRIES_PER_PAGE * bytes).enumerate() {
            page.gather(&header, number, data);
            codec.pack_all(&page.entries, &mut page.nibbles, &mut page.slots);
            let before = piece.overflow.len();
            for ((nibble, slot), place) in page.nibbles.iter().zip(&page.slots).zip(places.chunks_mut(bytes))
            {
                let (here, there) = target.split(nibble.class());
                place[..here].copy_from_slice(&slot[..here]);
                piece.overflow.extend_from_slice(&slot[here..here + there]);
            }
            piece.sectors.push(((piece.overflow.len() - before) / SECTOR_BYTES) as u32);
            let pairs = page.nibbles.as_chunks::<2>().0;
            piece.nibbles.extend(pairs.iter().map(|[low, high]| low.bits() | high.bits() << 4));
        }
        Ok(piece)
    }
}

impl FrozenPiece {
    /// Returns the checksums of the piece's slots, for
    /// [`FrozenHeader::encode_sealed`](super::FrozenHeader::encode_sealed).
    pub fn checksums(&self, target: Target) -> Vec<u8> {
        super::checksum::of_chunks(target, &self.device)
    }
}

/// A page of entries, unpacked and packed.
struct Page {
    entries: Vec<Entry>,
    nibbles: Vec<Nibble>,
    slots: Vec<Entry>,
}

impl Page {
    fn new() -> Self {
        let zeros = vec![ZERO_ENTRY; ENTRIES_PER_PAGE];
        let nibbles = vec![Nibble::new(SizeClass::Zero, Layout::A); ENTRIES_PER_PAGE];
        Self { entries: zeros.clone(), nibbles, slots: zeros }
    }

    /// Fills a page with the entries of its slots; empty slots are zero.
    fn gather(&mut self, header: &FrozenHeader, number: usize, data: &[u8]) {
        let first = (number * ENTRIES_PER_PAGE) as u64;
        for (place, entry) in (first..).zip(&mut self.entries) {
            let from = header.entry_at(place).and_then(|at| data.get(at as usize * ENTRY_BYTES..));
            match from.unwrap_or_default() {
                [] => *entry = ZERO_ENTRY,
                part => match part.first_chunk() {
                    Some(whole) => *entry = *whole,
                    None => {
                        *entry = ZERO_ENTRY;
                        entry[..part.len()].copy_from_slice(part);
                    }
                },
            }
            if header.row != 0 {
                *entry = to_stored(entry);
            }
        }
    }
}

impl FrozenHeader {
    /// Returns the alignment of pieces in entries: one page, or for a matrix one row of tiles.
    pub fn step(&self) -> u64 {
        ENTRIES_PER_PAGE as u64 * u64::from(self.row).max(1)
    }

    /// Returns the entry in a slot, if any.
    fn entry_at(&self, place: u64) -> Option<u64> {
        let entry = match u64::from(self.row) {
            0 => place,
            row => {
                let (column, at) = (place / super::header::TILE_ROWS, place % super::header::TILE_ROWS);
                (column / row * super::header::TILE_ROWS + at) * row + column % row
            }
        };
        (entry < self.entries()).then_some(entry)
    }
}

impl Frozen<'_> {
    /// Reads `out.len()` bytes from entry `first`, a multiple of [`FrozenHeader::step`].
    ///
    /// # Errors
    /// [`Error::Frozen`] for a range that is not aligned as in [`FrozenPiece::pack`], or the error
    /// of an invalid entry.
    pub fn read_piece(&self, first: u64, out: &mut [u8]) -> Result<(), Error> {
        let step = self.header.step();
        let end = first.saturating_mul(ENTRY_BYTES as u64).saturating_add(out.len() as u64);
        if !first.is_multiple_of(step)
            || end > self.header.bytes
            || (end < self.header.bytes && !end.is_multiple_of(step * ENTRY_BYTES as u64))
        {
            return Err(invalid("a piece must begin and end at pages of the buffer"));
        }
        let part = FrozenHeader { bytes: out.len() as u64, ..self.header.clone() };
        let mut page = Page::new();
        for number in 0..part.pages() {
            self.load(first / ENTRIES_PER_PAGE as u64 + number, &mut page)?;
            let done = self.header.codec.unpack_all(&page.nibbles, &page.slots, &mut page.entries);
            done.map_err(|error| error.source)?;
            for (place, entry) in (number * ENTRIES_PER_PAGE as u64..).zip(&page.entries) {
                if let Some(at) = part.entry_at(place) {
                    let to = &mut out[at as usize * ENTRY_BYTES..];
                    let bytes = to.len().min(ENTRY_BYTES);
                    let entry = if part.row == 0 { *entry } else { to_plain(entry) };
                    to[..bytes].copy_from_slice(&entry[..bytes]);
                }
            }
        }
        Ok(())
    }

    /// Loads the stored entries of a page.
    fn load(&self, page: u64, to: &mut Page) -> Result<(), Error> {
        let target = self.header.target;
        let (first, bytes) = (page * ENTRIES_PER_PAGE as u64, target.device_bytes());
        let device = &self.bytes[(self.parts.device.start + first * bytes as u64) as usize..];
        let mut overflow = u64::from(self.sectors_before(page));
        for (i, slot) in to.slots.iter_mut().enumerate() {
            let nibble = self.nibble(first + i as u64)?;
            let (here, there) = target.split(nibble.class());
            slot[..here].copy_from_slice(&device[i * bytes..][..here]);
            if there > 0 {
                slot[here..here + there].copy_from_slice(self.sector(overflow, there)?);
                overflow += u64::from(overflow_sectors(target, nibble));
            }
            to.nibbles[i] = nibble;
        }
        Ok(())
    }
}
