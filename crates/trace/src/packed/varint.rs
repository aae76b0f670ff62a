//! Variable-length integers (LEB128): seven bits per byte, lowest first, top bit set on all but the
//! last.

use crate::Problem;

/// Returns the error for corrupt data.
pub(super) fn damaged(what: &'static str) -> Problem {
    Problem::Damaged(what)
}

/// Appends a varint.
#[inline]
pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Maps a signed number to an unsigned one of similar magnitude.
#[inline]
pub(super) fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

/// Inverts [`zigzag`].
#[inline]
pub(super) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// A read position in a byte slice that is passed to each call.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cursor {
    at: usize,
    end: usize,
}

impl Cursor {
    pub(super) fn all(bytes: &[u8]) -> Self {
        Self { at: 0, end: bytes.len() }
    }

    pub(super) fn is_done(&self) -> bool {
        self.at == self.end
    }

    #[inline]
    pub(super) fn byte(&mut self, bytes: &[u8]) -> Result<u8, Problem> {
        match bytes.get(self.at) {
            Some(&byte) if self.at < self.end => {
                self.at += 1;
                Ok(byte)
            }
            _ => Err(damaged("a part ends too early")),
        }
    }

    #[inline]
    pub(super) fn number(&mut self, bytes: &[u8]) -> Result<u64, Problem> {
        let first = self.byte(bytes)?;
        if first < 0x80 { Ok(first.into()) } else { self.long_number(first, bytes) }
    }

    fn long_number(&mut self, first: u8, bytes: &[u8]) -> Result<u64, Problem> {
        let mut value = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = self.byte(bytes)?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return if shift == 63 && byte > 1 {
                    Err(damaged("a number is too long"))
                } else {
                    Ok(value)
                };
            }
        }
        Err(damaged("a number is too long"))
    }

    /// Reads a number below `limit`.
    #[inline]
    pub(super) fn below(&mut self, bytes: &[u8], limit: u64, what: &'static str) -> Result<u64, Problem> {
        let number = self.number(bytes)?;
        if number < limit { Ok(number) } else { Err(damaged(what)) }
    }

    /// Reads a length and returns a cursor over that many bytes.
    pub(super) fn section(&mut self, bytes: &[u8]) -> Result<Self, Problem> {
        let length = self.number(bytes)?;
        if length > (self.end - self.at) as u64 {
            return Err(damaged("a part is longer than what holds it"));
        }
        let section = Self { at: self.at, end: self.at + length as usize };
        self.at = section.end;
        Ok(section)
    }

    /// Returns the remaining bytes.
    pub(super) fn remaining<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(self.at..self.end).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip() {
        let mut bytes = Vec::new();
        let numbers = [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX];
        numbers.iter().for_each(|&number| put(&mut bytes, number));
        let mut cursor = Cursor::all(&bytes);
        numbers.iter().for_each(|&number| assert_eq!(cursor.number(&bytes).unwrap(), number));
        assert!(cursor.is_done() && cursor.number(&bytes).is_err());
        for value in [0, -1, 1, i64::MIN, i64::MAX] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
        assert_eq!((zigzag(-1), zigzag(1)), (1, 2));
    }

    #[test]
    fn a_number_beyond_64_bits_is_refused() {
        let bytes = [[0xff; 9].as_slice(), &[2]].concat();
        assert!(Cursor::all(&bytes).number(&bytes).is_err());
        assert!(Cursor::all(&[0x80]).number(&[0x80]).is_err());
    }
}
