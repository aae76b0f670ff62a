//! Columns of records: numbers at a fixed place of each record, copied to an array of their own in
//! little-endian order.

use std::ops::Range;

use buddy_core::Dtype;

use crate::{Error, scratch::Scratch};

/// A number, or an array of numbers, at a fixed place of each record.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    /// True if its numbers are big-endian.
    pub(crate) swapped: bool,
    /// Integers that use only some bits of their bytes.
    pub(crate) bits: Option<Bits>,
    /// Bytes from the start of a record.
    pub(crate) offset: usize,
    /// Dimensions within one record.
    pub(crate) shape: Vec<u64>,
}

/// The bits of an integer that count; the others are padding.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bits {
    /// The least significant of them.
    pub(crate) offset: u32,
    /// Their number.
    pub(crate) precision: u32,
    /// True if the most significant of them is the sign.
    pub(crate) signed: bool,
}

impl Bits {
    /// Replaces a little-endian number of up to eight bytes by the value of its bits.
    fn extend(self, number: &mut [u8]) {
        let stored = number.iter().rev().fold(0, |all: u64, &byte| all << 8 | u64::from(byte));
        let unused = 64u32.saturating_sub(self.precision);
        let value = (stored >> self.offset) << unused;
        let value = if self.signed { ((value as i64) >> unused) as u64 } else { value >> unused };
        number.iter_mut().zip(value.to_le_bytes()).for_each(|(byte, value)| *byte = value);
    }
}

impl Column {
    /// Returns its bytes in one record.
    pub(crate) fn bytes(&self) -> Option<usize> {
        self.shape
            .iter()
            .try_fold(self.dtype.bytes(), |bytes, &n| bytes.checked_mul(usize::try_from(n).ok()?))
    }

    /// Returns whether records of `record` bytes are this column without conversion.
    pub(crate) fn is_plain(&self, record: usize) -> bool {
        !self.swapped && self.bits.is_none() && self.offset == 0 && self.bytes() == Some(record)
    }
}

/// Bytes of records that are copied at a time.
const COPIED: usize = 1 << 20;

/// Copies one column of all records to the scratch file, in little-endian order.
pub(crate) fn copy(
    data: &[u8],
    column: &Column,
    record: usize,
    scratch: &mut Scratch,
) -> Result<Range<usize>, Error> {
    let number = column.dtype.scalar_bytes();
    let place = column.bytes().and_then(|bytes| Some(column.offset..column.offset.checked_add(bytes)?));
    let absurd = || Error::Absurd { shape: column.shape.clone(), dtype: column.dtype };
    let place = place.ok_or_else(absurd)?;
    if place.is_empty() || record == 0 || data.len() < record {
        return Ok(scratch.add(&mut std::io::empty(), 0)?.0);
    }
    let total = (data.len() / record * place.len()) as u64;
    scratch.reserve(total)?;
    let mut start = None;
    let mut end = 0;
    let mut piece = Vec::with_capacity(COPIED.min(total as usize));
    for records in data.chunks(record.saturating_mul(COPIED.div_ceil(record))) {
        piece.clear();
        for values in records.chunks_exact(record).filter_map(|record| record.get(place.clone())) {
            if column.swapped {
                piece.extend(values.chunks(number).flat_map(|number| number.iter().rev()));
            } else {
                piece.extend_from_slice(values);
            }
        }
        if let Some(bits) = column.bits {
            piece.chunks_exact_mut(number).for_each(|number| bits.extend(number));
        }
        let (range, _) = scratch.add(&mut &piece[..], piece.len() as u64)?;
        start.get_or_insert(range.start);
        end = range.end;
    }
    Ok(start.unwrap_or(end)..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_some_bits_keep_their_value() {
        let value = |bits: Bits, stored: u16| {
            let mut number = stored.to_le_bytes();
            bits.extend(&mut number);
            i16::from_le_bytes(number)
        };
        let bits = |offset, precision, signed| Bits { offset, precision, signed };
        assert_eq!(value(bits(4, 12, false), 0xabc5), 0xabc);
        assert_eq!(value(bits(4, 12, true), 0xabc5), 0xabc - 0x1000);
        assert_eq!(value(bits(0, 5, true), 0xff0f), 15);
    }
}
