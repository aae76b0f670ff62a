//! Numbers of one to ten bytes: seven bits in each, the lowest first, the top bit set on all but the last.

use crate::Problem;

/// A part of a file that is too short or says something impossible.
pub(super) fn damaged(what: &'static str) -> Problem {
    Problem::Damaged(what)
}

/// Appends a number.
#[inline]
pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A signed number as an unsigned one: small either way stays small.
#[inline]
pub(super) fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

/// The way back.
#[inline]
pub(super) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// A place in bytes that are read from the front; it may be kept while they lie elsewhere.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Place {
    at: usize,
    end: usize,
}

impl Place {
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

    /// A number under a limit.
    #[inline]
    pub(super) fn under(&mut self, bytes: &[u8], limit: u64, what: &'static str) -> Result<u64, Problem> {
        let number = self.number(bytes)?;
        if number < limit { Ok(number) } else { Err(damaged(what)) }
    }

    /// A length and the place of so many bytes.
    pub(super) fn part(&mut self, bytes: &[u8]) -> Result<Self, Problem> {
        let length = self.number(bytes)?;
        if length > (self.end - self.at) as u64 {
            return Err(damaged("a part is longer than what holds it"));
        }
        let part = Self { at: self.at, end: self.at + length as usize };
        self.at = part.end;
        Ok(part)
    }

    /// The bytes of the place.
    pub(super) fn of<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(self.at..self.end).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let mut bytes = Vec::new();
        let numbers = [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX];
        numbers.iter().for_each(|&number| put(&mut bytes, number));
        let mut place = Place::all(&bytes);
        numbers.iter().for_each(|&number| assert_eq!(place.number(&bytes).unwrap(), number));
        assert!(place.is_done() && place.number(&bytes).is_err());
        for value in [0, -1, 1, i64::MIN, i64::MAX] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
        assert_eq!((zigzag(-1), zigzag(1)), (1, 2));
    }

    #[test]
    fn a_number_beyond_64_bits_is_refused() {
        let bytes = [[0xff; 9].as_slice(), &[2]].concat();
        assert!(Place::all(&bytes).number(&bytes).is_err());
        assert!(Place::all(&[0x80]).number(&[0x80]).is_err());
    }
}
