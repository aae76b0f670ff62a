//! Address columns: run-length coded prediction residuals, and delta-coded address lists.

use super::varint::{Cursor, damaged, put, unzigzag, zigzag};
use crate::Problem;

/// Writes prediction residuals of addresses, run-length coded: a count of zeros, then a non-zero
/// residual, repeated.
#[derive(Debug, Default)]
pub(super) struct ResidualWriter {
    zeros: u64,
    bytes: Vec<u8>,
}

impl ResidualWriter {
    #[inline]
    pub(super) fn push(&mut self, residual: u64) {
        if residual == 0 {
            self.zeros += 1;
            return;
        }
        put(&mut self.bytes, std::mem::take(&mut self.zeros));
        put(&mut self.bytes, zigzag(residual as i64));
    }

    /// Appends the column with its length and resets the writer.
    pub(super) fn write(&mut self, out: &mut Vec<u8>) {
        put(&mut self.bytes, std::mem::take(&mut self.zeros));
        put(out, self.bytes.len() as u64);
        out.append(&mut self.bytes);
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// Reads a column of residuals.
#[derive(Debug, Default)]
pub(super) struct ResidualReader {
    zeros: u64,
    cursor: Cursor,
}

impl ResidualReader {
    pub(super) fn new(bytes: &[u8], mut cursor: Cursor) -> Result<Self, Problem> {
        let zeros = cursor.number(bytes)?;
        Ok(Self { zeros, cursor })
    }

    #[inline]
    pub(super) fn next(&mut self, bytes: &[u8]) -> Result<u64, Problem> {
        if self.zeros > 0 {
            self.zeros -= 1;
            return Ok(0);
        }
        let residual = unzigzag(self.cursor.number(bytes)?) as u64;
        self.zeros = self.cursor.number(bytes)?;
        Ok(residual)
    }

    pub(super) fn is_done(&self) -> bool {
        self.zeros == 0 && self.cursor.is_done()
    }
}

/// Last address list of each instruction, as differences between lanes.
#[derive(Debug, Default)]
pub(super) struct ListCoder {
    last: Vec<Vec<i64>>,
}

/// Coding of a list: differences equal to the instruction's last list, in bytes, or in access
/// widths.
const SAME: u64 = 0;
const BYTES: u64 = 1;
const WIDTHS: u64 = 2;

impl ListCoder {
    pub(super) fn reserve(&mut self, instructions: usize) {
        self.last.resize_with(self.last.len().max(instructions), Vec::new);
    }

    /// Writes a list's differences.
    pub(super) fn write(&mut self, instruction: u32, width: u8, list: &[u64], out: &mut Vec<u8>) {
        let differences: Vec<i64> =
            list.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]) as i64).collect();
        let last = &mut self.last[instruction as usize];
        if *last == differences {
            return put(out, SAME);
        }
        let width = i64::from(width);
        let aligned = differences.iter().all(|difference| difference % width == 0);
        put(out, if aligned { WIDTHS } else { BYTES });
        differences
            .iter()
            .for_each(|difference| put(out, zigzag(if aligned { difference / width } else { *difference })));
        *last = differences;
    }

    /// Reads a list that begins at `base`; the length of `list` is the number of lanes.
    pub(super) fn read(
        &mut self,
        instruction: u32,
        (width, base): (u8, u64),
        (bytes, cursor): (&[u8], &mut Cursor),
        list: &mut [u64],
    ) -> Result<(), Problem> {
        let last = &mut self.last[instruction as usize];
        let scale = match cursor.number(bytes)? {
            SAME if last.len() + 1 == list.len() => 0,
            BYTES => 1,
            WIDTHS => i64::from(width),
            _ => return Err(damaged("a list is of no known kind, or the first of its length")),
        };
        if scale > 0 {
            last.clear();
            for _ in 1..list.len() {
                last.push(unzigzag(cursor.number(bytes)?).wrapping_mul(scale));
            }
        }
        let mut address = base;
        list[0] = base;
        for (slot, difference) in list[1..].iter_mut().zip(last.iter()) {
            address = address.wrapping_add_signed(*difference);
            *slot = address;
        }
        Ok(())
    }
}
