//! Where addresses differ from what was foretold: runs of zeros and what lies between them; and lists of addresses.

use super::varint::{Place, damaged, put, unzigzag, zigzag};
use crate::Problem;

/// By how much addresses were foretold wrong, as it is written: how often not at all, then once by how much, and again.
#[derive(Debug, Default)]
pub(super) struct Wrongs {
    zeros: u64,
    bytes: Vec<u8>,
}

impl Wrongs {
    #[inline]
    pub(super) fn push(&mut self, wrong_by: u64) {
        if wrong_by == 0 {
            self.zeros += 1;
            return;
        }
        put(&mut self.bytes, std::mem::take(&mut self.zeros));
        put(&mut self.bytes, zigzag(wrong_by as i64));
    }

    /// Appends the column with its length, and begins anew.
    pub(super) fn write(&mut self, out: &mut Vec<u8>) {
        put(&mut self.bytes, std::mem::take(&mut self.zeros));
        put(out, self.bytes.len() as u64);
        out.append(&mut self.bytes);
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// The same column as it is read.
#[derive(Debug, Default)]
pub(super) struct ReadWrongs {
    zeros: u64,
    place: Place,
}

impl ReadWrongs {
    pub(super) fn new(bytes: &[u8], mut place: Place) -> Result<Self, Problem> {
        let zeros = place.number(bytes)?;
        Ok(Self { zeros, place })
    }

    #[inline]
    pub(super) fn next(&mut self, bytes: &[u8]) -> Result<u64, Problem> {
        if self.zeros > 0 {
            self.zeros -= 1;
            return Ok(0);
        }
        let wrong_by = unzigzag(self.place.number(bytes)?) as u64;
        self.zeros = self.place.number(bytes)?;
        Ok(wrong_by)
    }

    pub(super) fn is_done(&self) -> bool {
        self.zeros == 0 && self.place.is_done()
    }
}

/// The last list of each instruction, as differences from lane to lane.
#[derive(Debug, Default)]
pub(super) struct Lists {
    last: Vec<Vec<i64>>,
}

/// Whether an instruction's list is its last one moved, its differences follow in bytes, or in widths.
const SAME: u64 = 0;
const BYTES: u64 = 1;
const WIDTHS: u64 = 2;

impl Lists {
    pub(super) fn reserve(&mut self, instructions: usize) {
        self.last.resize_with(self.last.len().max(instructions), Vec::new);
    }

    /// Writes a list's differences.
    pub(super) fn write(&mut self, instruction: u32, width: u8, list: &[u64], out: &mut Vec<u8>) {
        let steps: Vec<i64> = list.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]) as i64).collect();
        let last = &mut self.last[instruction as usize];
        if *last == steps {
            return put(out, SAME);
        }
        let width = i64::from(width);
        let whole = steps.iter().all(|step| step % width == 0);
        put(out, if whole { WIDTHS } else { BYTES });
        steps.iter().for_each(|step| put(out, zigzag(if whole { step / width } else { *step })));
        *last = steps;
    }

    /// Reads a list that begins at `base`; `list` holds as many places as it has lanes.
    pub(super) fn read(
        &mut self,
        instruction: u32,
        (width, base): (u8, u64),
        (bytes, place): (&[u8], &mut Place),
        list: &mut [u64],
    ) -> Result<(), Problem> {
        let last = &mut self.last[instruction as usize];
        let scale = match place.number(bytes)? {
            SAME if last.len() + 1 == list.len() => 0,
            BYTES => 1,
            WIDTHS => i64::from(width),
            _ => return Err(damaged("a list is of no known kind, or the first of its length")),
        };
        if scale > 0 {
            last.clear();
            for _ in 1..list.len() {
                last.push(unzigzag(place.number(bytes)?).wrapping_mul(scale));
            }
        }
        let mut address = base;
        list[0] = base;
        for (place, step) in list[1..].iter_mut().zip(last.iter()) {
            address = address.wrapping_add_signed(*step);
            *place = address;
        }
        Ok(())
    }
}
