//! Packs a tile: chooses the codes of its columns and its values.

use super::{
    Real,
    bits::{put, width},
    tile::{COUNTS, CsrTile, DISTANCES, RELATIVE, SEVERAL, VALUES},
};

/// A segment of a row: its elements in the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) row: u32,
    pub(super) begin: usize,
    pub(super) elements: usize,
}

/// Codes of an array: offsets from a base, or indices in a dictionary.
struct Codes {
    bits: u8,
    base: u64,
    shift: u8,
    dictionary: Vec<u64>,
    codes: Vec<u64>,
}

impl Codes {
    /// Returns the bits of codes and dictionary, whose values have `bits` bits.
    fn cost(&self, bits: usize) -> usize {
        self.codes.len() * usize::from(self.bits) + self.dictionary.len() * bits
    }

    /// Returns the cheaper one; the first of equal ones.
    fn or(self, other: Option<Self>, bits: usize) -> Self {
        match other {
            Some(other) if other.cost(bits) < self.cost(bits) => other,
            _ => self,
        }
    }

    /// Returns indices in a dictionary; `None` for more than `most` values.
    fn dictionary(values: &[u64], most: usize) -> Option<Self> {
        // A hash table of indices plus one, four times as large as the dictionary.
        let mut slots = [0u16; 4 * (VALUES + 1)];
        let (mut dictionary, mut codes) = (Vec::new(), Vec::with_capacity(values.len()));
        for &value in values {
            let mut slot = (value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize;
            while slots[slot] != 0 && dictionary[usize::from(slots[slot]) - 1] != value {
                slot = (slot + 1) % slots.len();
            }
            if slots[slot] == 0 {
                if dictionary.len() == most {
                    return None;
                }
                dictionary.push(value);
                slots[slot] = dictionary.len() as u16;
            }
            codes.push(u64::from(slots[slot]) - 1);
        }
        let bits = width((dictionary.len() as u64).saturating_sub(1));
        Some(Self { bits, base: 0, shift: 0, dictionary, codes })
    }

    /// Returns offsets from the least column.
    fn columns(columns: impl Iterator<Item = i64> + Clone) -> Self {
        let least = columns.clone().min().unwrap_or(0);
        let codes: Vec<u64> = columns.map(|column| (column - least) as u64).collect();
        let bits = width(codes.iter().copied().max().unwrap_or(0));
        Self { bits, base: least as u64 & u64::from(u32::MAX), shift: 0, dictionary: Vec::new(), codes }
    }

    /// Returns offsets from the least magnitude, without the low bits that are zero in all, and the
    /// sign as the lowest bit; or the values, if that takes as many bits.
    fn values<V: Real>(values: &[u64]) -> Self {
        let all = 8 * V::BYTES as u8;
        let sign = all - 1;
        let magnitude = |value: u64| value & !(1 << sign);
        let base = values.iter().map(|&value| magnitude(value)).min().unwrap_or(0);
        let (mut used, mut most) = (0, 0);
        for &value in values {
            used |= magnitude(value) - base;
            most = most.max(magnitude(value) - base);
        }
        let shift = if used == 0 { 0 } else { used.trailing_zeros() as u8 };
        let bits = width(most >> shift) + 1;
        if bits >= all {
            return Self { bits: all, base: 0, shift: 0, dictionary: Vec::new(), codes: values.to_vec() };
        }
        let code = |&value: &u64| (magnitude(value) - base) >> shift << 1 | value >> sign;
        Self { bits, base, shift, dictionary: Vec::new(), codes: values.iter().map(code).collect() }
    }
}

/// A tile's elements in stored order.
struct Elements {
    rows: Vec<u32>,
    columns: Vec<u32>,
    values: Vec<u64>,
    counts: Vec<u8>,
}

impl Elements {
    fn new<V: Real>(segments: &[Segment], indices: &[u32], values: &[V]) -> Self {
        let longest = segments.first().map_or(0, |segment| segment.elements);
        let mut all = Self { rows: Vec::new(), columns: Vec::new(), values: Vec::new(), counts: Vec::new() };
        for k in 0..longest {
            let longer = segments.partition_point(|segment| segment.elements > k);
            all.counts.push(longer as u8);
            for segment in &segments[..longer] {
                all.rows.push(segment.row);
                all.columns.push(indices[segment.begin + k]);
                all.values.push(values[segment.begin + k].bits());
            }
        }
        all
    }

    fn column_codes(&self) -> (Codes, u8) {
        let columns = self.columns.iter().map(|&column| i64::from(column));
        let distances = columns.clone().zip(&self.rows).map(|(column, &row)| column - i64::from(row));
        let wrapped: Vec<u64> =
            distances.clone().map(|distance| distance as u64 & u64::from(u32::MAX)).collect();
        let relative = Codes::columns(distances).or(Codes::dictionary(&wrapped, DISTANCES), 32);
        let absolute = Codes::columns(columns);
        if relative.cost(32) < absolute.cost(32) { (relative, RELATIVE) } else { (absolute, 0) }
    }
}

/// Packs the segments of a tile and appends the payload to `to`.
pub(super) fn tile<V: Real>(
    mut segments: Vec<Segment>,
    indices: &[u32],
    values: &[V],
    to: &mut Vec<u8>,
) -> CsrTile {
    let several = segments.windows(2).any(|pair| pair[0].row == pair[1].row);
    segments.sort_by_key(|segment| std::cmp::Reverse(segment.elements));
    let first_row = segments.iter().map(|segment| segment.row).min().unwrap_or(0);
    let offsets: Vec<u64> = segments.iter().map(|segment| u64::from(segment.row - first_row)).collect();
    let in_order = offsets.iter().enumerate().all(|(at, &offset)| at as u64 == offset);
    let row_bits = if in_order { 0 } else { width(offsets.iter().copied().max().unwrap_or(0)).max(1) };

    let elements = Elements::new(&segments, indices, values);
    let (columns, relative) = elements.column_codes();
    let all = 8 * V::BYTES as u8;
    let values = Codes::values::<V>(&elements.values)
        .or(Codes::dictionary(&elements.values, VALUES), usize::from(all));
    let payload = to.len() as u64;
    put(to, values.bits, values.codes.iter().copied());
    put(to, columns.bits, columns.codes.iter().copied());
    put(to, all, values.dictionary.iter().copied());
    put(to, 32, columns.dictionary.iter().copied());
    put(to, row_bits, if in_order { [].iter() } else { offsets.iter() }.copied());
    put(to, 8, elements.counts.iter().skip(COUNTS).map(|&count| u64::from(count)));
    CsrTile {
        payload,
        value_base: values.base,
        counts: std::array::from_fn(|k| elements.counts.get(k).copied().unwrap_or(0)),
        first_row,
        column_base: columns.base as u32,
        part: 0,
        elements: elements.columns.len() as u16,
        segments: segments.len() as u8,
        longest: elements.counts.len() as u8,
        row_bits,
        column_bits: columns.bits,
        value_bits: values.bits,
        value_shift: values.shift,
        column_codes: columns.dictionary.len() as u8,
        value_codes: values.dictionary.len() as u16,
        flags: relative | if several { SEVERAL } else { 0 },
    }
}
