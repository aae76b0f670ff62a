//! Tight matrices (`docs/reference/format.md`): read-only bf16 at 0.70 of its bytes. A value takes
//! 11 bits: its low byte, its sign, and two bits of its exponent. Sixteen values whose exponents
//! need a third bit share one extra word; values far outside are exceptions.

mod column;
mod header;
mod rows;
#[cfg(test)]
mod tests;

use buddy_core::{ENTRY_BYTES, Entry, ZERO_ENTRY};
use column::{Column, Pair, Stored};
use header::{TILE_ROWS, checksum, invalid};
pub use header::{TightHeader, TightParts};
use rayon::prelude::*;
use rows::RowByte;

use crate::Error;

/// Bytes of a column: sixteen rows of 64 values, without its extra words.
const COLUMN_BYTES: usize = 1408;
/// Lanes of a column: four for each of eight pairs of rows.
const LANES: usize = 32;

/// A view of a tight matrix whose header and length were checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tight<'a> {
    header: TightHeader,
    parts: TightParts,
    bytes: &'a [u8],
}

/// Packs a bf16 matrix whose rows have `row` entries of 64 values, with its checksum. The result
/// may be larger than the data: exponents that lie far apart take four bytes more for each value.
///
/// # Errors
/// [`Error::Frozen`] unless the data is whole rows, or for 2^32 extra words or more.
pub fn tighten(row: u32, data: &[u8]) -> Result<Vec<u8>, Error> {
    let mut header = TightHeader { bytes: data.len() as u64, row, words: 0 };
    header.check()?;
    let row_bytes = row as usize * ENTRY_BYTES;
    let tiles: Vec<Tile> =
        data.par_chunks(TILE_ROWS * row_bytes).map(|rows| Tile::pack(row as usize, rows)).collect();
    let mut index = Vec::with_capacity(4 * (tiles.len() * header.pairs() as usize + 1));
    for count in tiles.iter().flat_map(|tile| &tile.counts) {
        index.extend(header.words.to_le_bytes());
        header.words = header.words.checked_add(*count).ok_or_else(|| invalid("2^32 extra words"))?;
    }
    index.extend(header.words.to_le_bytes());
    let parts = header.parts();
    let mut out = vec![0; parts.total as usize];
    let mut put = |at: u64, bytes: &[u8]| out[at as usize..][..bytes.len()].copy_from_slice(bytes);
    put(parts.index.start, &index);
    let mut words = parts.words.start;
    for (i, tile) in tiles.iter().enumerate() {
        let i = i as u64;
        put(parts.columns.start + i * tile.columns.len() as u64, &tile.columns);
        put(parts.flags.start + i * tile.flags.len() as u64, &tile.flags);
        put(parts.rows.start + i * TILE_ROWS as u64, &tile.rows);
        put(words, &tile.words);
        words += tile.words.len() as u64;
    }
    let sealed = header.encode(checksum(&header, &out));
    out[..sealed.len()].copy_from_slice(&sealed);
    Ok(out)
}

/// Sixteen packed rows.
#[derive(Default)]
struct Tile {
    columns: Vec<u8>,
    flags: Vec<u8>,
    /// Extra words of each pair of columns.
    counts: Vec<u32>,
    words: Vec<u8>,
    rows: [u8; TILE_ROWS],
}

impl Tile {
    /// Packs sixteen rows, or fewer at the end of a matrix.
    fn pack(per_row: usize, data: &[u8]) -> Self {
        let row_bytes = per_row * ENTRY_BYTES;
        let rows: [&[u8]; TILE_ROWS] =
            std::array::from_fn(|i| data.get(i * row_bytes..(i + 1) * row_bytes).unwrap_or_default());
        let row_bytes = rows.map(RowByte::choose);
        let mut tile = Self::default();
        for first in (0..per_row).step_by(2) {
            let mut pair = Pair::default();
            for k in first..per_row.min(first + 2) {
                let entries = rows.map(|row| row.as_chunks().0.get(k).copied().unwrap_or(ZERO_ENTRY));
                let column = Column::pack(&entries, &row_bytes, k % 2, &mut pair);
                tile.columns.extend(column.bytes());
                tile.flags.extend(column.flags.iter().flat_map(|flags| flags.to_le_bytes()));
            }
            let words = pair.words();
            tile.counts.push(words.len() as u32);
            tile.words.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        }
        for (row, byte) in row_bytes.iter().enumerate() {
            tile.rows[column::row_place(row)] = byte.0;
        }
        tile
    }
}

impl<'a> Tight<'a> {
    /// Opens a tight matrix.
    ///
    /// # Errors
    /// [`Error::Frozen`] if the header is invalid or the length does not match. Everything else is
    /// checked when entries are read.
    pub fn open(bytes: &'a [u8]) -> Result<Self, Error> {
        let header = TightHeader::parse(bytes)?;
        let parts = header.parts();
        if bytes.len() as u64 != parts.total {
            return Err(invalid("length does not match its header"));
        }
        Ok(Self { header, parts, bytes })
    }

    /// Returns the header.
    pub fn header(&self) -> &TightHeader {
        &self.header
    }

    /// Compares the whole matrix with its checksum, on all threads. Returns whether it has one.
    ///
    /// # Errors
    /// [`Error::Damaged`] if they differ.
    pub fn check(&self) -> Result<bool, Error> {
        match self.checksum() {
            None => Ok(false),
            Some(stored) if stored == checksum(&self.header, self.bytes) => Ok(true),
            Some(_) => Err(Error::Damaged),
        }
    }

    /// Returns the stored checksum, if there is one.
    pub fn checksum(&self) -> Option<u128> {
        Some(header::stored_checksum(self.bytes)).filter(|&stored| stored != 0)
    }

    /// Reads one entry: 64 values of a row.
    ///
    /// # Errors
    /// [`Error::Frozen`] for an entry past the end, or for extra words or a row byte that cannot be.
    /// Never panics.
    pub fn entry(&self, entry: u64) -> Result<Entry, Error> {
        let per_row = u64::from(self.header.row);
        if entry >= self.header.entries() {
            return Err(invalid("entry out of range"));
        }
        let (row, k) = (entry / per_row, entry % per_row);
        let (tile, row) = (row / TILE_ROWS as u64, row as usize % TILE_ROWS);
        let byte = RowByte::parse(self.part(self.parts.rows.start + tile * 16, 16)[column::row_place(row)])?;
        let at = tile * per_row + k;
        let bytes = self.part(self.parts.columns.start + at * COLUMN_BYTES as u64, COLUMN_BYTES);
        let bytes = bytes.first_chunk().expect("a whole column");
        let column = Stored { bytes, flags: self.flags(at) };
        let other = if (k ^ 1) < per_row { self.flags(at + 1 - 2 * (k % 2)) } else { [0; 2] };
        let words = self.words(tile * self.header.pairs() + k / 2)?;
        column.unpack(row, byte, k as usize % 2, other, words)
    }

    /// Reads the whole matrix, on all threads.
    ///
    /// # Errors
    /// The error of an invalid entry.
    pub fn read(&self) -> Result<Vec<u8>, Error> {
        let mut out = vec![0; self.header.bytes as usize];
        self.read_entries(0, &mut out)?;
        Ok(out)
    }

    /// Reads as many entries as `out` holds, from `first` on, on all threads.
    ///
    /// # Errors
    /// As for [`entry`](Self::entry), or for `out` that is not whole entries.
    pub fn read_entries(&self, first: u64, out: &mut [u8]) -> Result<(), Error> {
        if !out.len().is_multiple_of(ENTRY_BYTES) {
            return Err(invalid("reads are of whole entries"));
        }
        out.par_chunks_mut(ENTRY_BYTES).enumerate().with_min_len(256).try_for_each(|(i, to)| {
            to.copy_from_slice(&self.entry(first.saturating_add(i as u64))?);
            Ok(())
        })
    }

    fn part(&self, at: u64, bytes: usize) -> &'a [u8] {
        &self.bytes[at as usize..][..bytes]
    }

    fn flags(&self, column: u64) -> [u32; 2] {
        let bytes = self.part(self.parts.flags.start + 8 * column, 8).as_chunks().0;
        [u32::from_le_bytes(bytes[0]), u32::from_le_bytes(bytes[1])]
    }

    /// Returns the extra words of a pair of columns.
    fn words(&self, pair: u64) -> Result<&'a [[u8; 2]], Error> {
        let bytes = self.part(self.parts.index.start + 4 * pair, 8).as_chunks().0;
        let (begin, end) = (u32::from_le_bytes(bytes[0]), u32::from_le_bytes(bytes[1]));
        let all = self.part(self.parts.words.start, 2 * self.header.words as usize).as_chunks().0;
        all.get(begin as usize..end as usize).ok_or_else(|| invalid("extra words beyond the end"))
    }
}
