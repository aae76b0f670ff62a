//! A tile of a packed matrix: up to 128 segments of rows, their elements in jagged order.

use super::{
    Real,
    bits::{each, get, room},
};

/// Segments of a tile at most: a thread block has a thread for each.
pub const TILE_SEGMENTS: usize = 128;
/// Elements of a segment at most. Rows up to this length are one segment, and their products are
/// added in plain order.
pub const SEGMENT_ELEMENTS: usize = 64;
/// Counts in the struct.
pub(super) const COUNTS: usize = 8;
/// Distances in a dictionary at most.
pub(super) const DISTANCES: usize = 255;
/// Values in a dictionary at most.
pub(super) const VALUES: usize = 1023;
/// [`CsrTile::flags`]: columns are relative to the row.
pub(super) const RELATIVE: u8 = 1;
/// [`CsrTile::flags`]: some rows have several segments.
pub(super) const SEVERAL: u8 = 2;

/// A tile, as the kernels take it.
///
/// The payload has six arrays, each of whole words of 8 bytes: value codes, column codes, the
/// dictionary of values, that of columns, the rows of segments, and `counts` from the ninth on:
/// the segments longer than 0, 1, 2 ... elements, a byte each. Segments are sorted by length,
/// longest first. Element `k` of segment `s` is number `counts[0] + ... + counts[k - 1] + s`, so
/// that neighbouring threads read neighbouring codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct CsrTile {
    /// First byte of the payload.
    pub payload: u64,
    /// The magnitude whose code is 0, without a dictionary.
    pub value_base: u64,
    /// The first eight of `counts`, which threads need before any code.
    pub counts: [u8; COUNTS],
    /// The row from which rows of segments are counted.
    pub first_row: u32,
    /// The column, or its distance from the row, whose code is 0, without a dictionary.
    pub column_base: u32,
    /// For a part of a row that lies in several tiles: its number among all such parts, plus one.
    pub part: u32,
    /// Elements.
    pub elements: u16,
    /// Values in the dictionary of values; 0 for none.
    pub value_codes: u16,
    /// Segments.
    pub segments: u8,
    /// Elements of the longest segment.
    pub longest: u8,
    /// Bits of a segment's row; 0 if segment `s` is row `s`.
    pub row_bits: u8,
    /// Bits of a column code.
    pub column_bits: u8,
    /// Bits of a value code. All bits of a value, without a dictionary: the value itself.
    pub value_bits: u8,
    /// Low bits of every magnitude that are zero.
    pub value_shift: u8,
    /// Distances in the dictionary of columns; 0 for none.
    pub column_codes: u8,
    /// 1: columns are relative to the row. 2: some rows have several segments.
    pub flags: u8,
}

/// A tile's arrays.
pub(super) struct Arrays<'a> {
    pub(super) values: &'a [u8],
    pub(super) columns: &'a [u8],
    value_codes: &'a [u8],
    column_codes: &'a [u8],
    rows: &'a [u8],
    counts: [u8; SEGMENT_ELEMENTS],
    longest: u8,
}

impl CsrTile {
    /// Returns the bytes of the struct.
    pub fn to_bytes(&self) -> [u8; size_of::<Self>()] {
        let words = [self.first_row, self.column_base, self.part];
        let bytes = [
            self.segments,
            self.longest,
            self.row_bits,
            self.column_bits,
            self.value_bits,
            self.value_shift,
            self.column_codes,
            self.flags,
        ];
        let mut all = [self.payload, self.value_base].map(u64::to_le_bytes).concat();
        all.extend(self.counts);
        all.extend(words.map(u32::to_le_bytes).concat());
        all.extend([self.elements, self.value_codes].map(u16::to_le_bytes).concat());
        all.extend(bytes);
        all.try_into().expect("the fields fill the struct")
    }

    /// Returns the tile's arrays, each with all bytes behind it.
    pub(super) fn arrays<V: Real>(self, payload: &[u8]) -> Arrays<'_> {
        let mut left = payload.get(self.payload as usize..).unwrap_or_default();
        let mut next = |bytes: usize| {
            let array = left;
            left = left.get(bytes..).unwrap_or_default();
            array
        };
        let elements = usize::from(self.elements);
        Arrays {
            values: next(room(elements, self.value_bits)),
            columns: next(room(elements, self.column_bits)),
            value_codes: next(room(usize::from(self.value_codes), 8 * V::BYTES as u8)),
            column_codes: next(room(usize::from(self.column_codes), 32)),
            rows: next(room(usize::from(self.segments), self.row_bits)),
            counts: self.all_counts(next(0)),
            longest: self.longest,
        }
    }

    /// Returns the struct's counts and those of the payload.
    fn all_counts(self, payload: &[u8]) -> [u8; SEGMENT_ELEMENTS] {
        let mut counts = [0; SEGMENT_ELEMENTS];
        let (first, rest) = counts.split_at_mut(COUNTS);
        first.copy_from_slice(&self.counts);
        let more = usize::from(self.longest).saturating_sub(COUNTS);
        rest.iter_mut().take(more).zip(payload).for_each(|(to, &count)| *to = count);
        counts
    }

    /// Returns the value of an offset and a sign.
    fn offset_value<V: Real>(self, code: u64) -> V {
        let magnitude = self.value_base.wrapping_add(code >> 1 << self.value_shift);
        V::from_bits(magnitude | (code & 1) << (8 * V::BYTES - 1))
    }

    pub(super) fn is_relative(self) -> bool {
        self.flags & RELATIVE != 0
    }
}

impl Arrays<'_> {
    /// Returns the segments longer than 0, 1, 2 ... elements.
    pub(super) fn counts(&self) -> &[u8] {
        &self.counts[..usize::from(self.longest)]
    }

    /// Returns the row of a segment.
    pub(super) fn row(&self, tile: CsrTile, segment: usize) -> u32 {
        let offset = if tile.row_bits == 0 { segment as u64 } else { get(self.rows, segment, tile.row_bits) };
        tile.first_row + offset as u32
    }

    /// Decodes all elements: columns from the row on if they are relative to it, and values.
    pub(super) fn decode<V: Real>(&self, tile: CsrTile, columns: &mut [u32], values: &mut [V]) {
        match tile.column_codes {
            0 => each(self.columns, tile.column_bits, columns, |code| {
                tile.column_base.wrapping_add(code as u32)
            }),
            count => {
                let mut table = [0; DISTANCES + 1];
                each(self.column_codes, 32, &mut table[..usize::from(count)], |code| code as u32);
                each(self.columns, tile.column_bits, columns, |code| table[code as usize % table.len()]);
            }
        }
        let all = 8 * V::BYTES as u8;
        match tile.value_codes {
            0 if tile.value_bits == all => each(self.values, all, values, V::from_bits),
            0 => each(self.values, tile.value_bits, values, |code| tile.offset_value(code)),
            count => {
                let mut table = [V::default(); VALUES + 1];
                each(self.value_codes, all, &mut table[..usize::from(count)], V::from_bits);
                each(self.values, tile.value_bits, values, |code| table[code as usize % table.len()]);
            }
        }
    }

    /// Returns the column of an element of a row.
    pub(super) fn column(&self, tile: CsrTile, element: usize, row: u32) -> u32 {
        let code = get(self.columns, element, tile.column_bits);
        let column = match tile.column_codes {
            0 => tile.column_base.wrapping_add(code as u32),
            _ => get(self.column_codes, code as usize, 32) as u32,
        };
        if tile.is_relative() { column.wrapping_add(row) } else { column }
    }

    /// Returns the value of an element.
    pub(super) fn value<V: Real>(&self, tile: CsrTile, element: usize) -> V {
        let code = get(self.values, element, tile.value_bits);
        let all = 8 * V::BYTES as u8;
        V::from_bits(match tile.value_codes {
            0 if tile.value_bits == all => code,
            0 => return tile.offset_value(code),
            _ => get(self.value_codes, code as usize, all),
        })
    }
}
