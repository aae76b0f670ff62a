//! Splits a line into words and parses numbers directly from bytes.

use crate::Problem;

/// The rest of a line.
#[derive(Clone, Copy)]
pub(super) struct Words<'a> {
    pub(super) rest: &'a [u8],
    line: &'a [u8],
}

impl<'a> Words<'a> {
    pub(super) fn new(line: &'a [u8]) -> Self {
        Self { rest: line, line }
    }

    /// Returns the next word.
    #[inline]
    pub(super) fn next(&mut self, expected: &'static str) -> Result<&'a [u8], Problem> {
        let start = self.rest.trim_ascii_start();
        let end = start.iter().position(u8::is_ascii_whitespace).unwrap_or(start.len());
        if end == 0 {
            return Err(unexpected(expected, self.line));
        }
        self.rest = &start[end..];
        Ok(&start[..end])
    }

    /// Parses a hexadecimal number, with or without `0x`.
    #[inline]
    pub(super) fn hex(&mut self, expected: &'static str) -> Result<u64, Problem> {
        let word = self.next(expected)?;
        let digits = word.strip_prefix(b"0x").unwrap_or(word);
        let mut value = 0u64;
        let mut bad = digits.is_empty();
        for &letter in digits {
            let digit = HEX[usize::from(letter)];
            bad |= digit > 15 || value >> 60 != 0;
            value = value << 4 | u64::from(digit & 15);
        }
        if bad { Err(unexpected(expected, word)) } else { Ok(value) }
    }

    #[inline]
    pub(super) fn decimal(&mut self, expected: &'static str) -> Result<u64, Problem> {
        let word = self.next(expected)?;
        digits(word).ok_or_else(|| unexpected(expected, word))
    }

    #[inline]
    pub(super) fn signed(&mut self, expected: &'static str) -> Result<i64, Problem> {
        let word = self.next(expected)?;
        let value = match word.strip_prefix(b"-") {
            Some(rest) => digits(rest).and_then(|size| 0i64.checked_sub_unsigned(size)),
            None => digits(word).and_then(|size| i64::try_from(size).ok()),
        };
        value.ok_or_else(|| unexpected(expected, word))
    }
}

/// Returns the error for an unexpected line or word.
pub(super) fn unexpected(expected: &'static str, found: &[u8]) -> Problem {
    Problem::expected(expected, &String::from_utf8_lossy(found))
}

/// Parses an unsigned decimal number.
#[inline]
pub(super) fn digits(word: &[u8]) -> Option<u64> {
    let add = |value: u64, letter: &u8| {
        let digit = letter.wrapping_sub(b'0');
        if digit > 9 { None } else { value.checked_mul(10)?.checked_add(digit.into()) }
    };
    if word.is_empty() { None } else { word.iter().try_fold(0, add) }
}

/// Value of a hexadecimal digit; 255 for other bytes.
const HEX: [u8; 256] = {
    let mut table = [255; 256];
    let mut digit = 0;
    while digit < 16 {
        table[b"0123456789abcdef"[digit] as usize] = digit as u8;
        table[b"0123456789ABCDEF"[digit] as usize] = digit as u8;
        digit += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_parse_up_to_their_limits() {
        let mut words = Words::new(b" 0xffffffffffffffff FF 18446744073709551615 -9223372036854775808 -1");
        assert_eq!((words.hex("a").unwrap(), words.hex("b").unwrap()), (u64::MAX, 255));
        assert_eq!(words.decimal("c").unwrap(), u64::MAX);
        assert_eq!((words.signed("d").unwrap(), words.signed("e").unwrap()), (i64::MIN, -1));
        assert!(words.next("f").is_err());
    }

    #[test]
    fn malformed_numbers_are_refused() {
        for word in [&b"0x10000000000000000"[..], b"0x", b"g", b"-1"] {
            assert!(Words::new(word).hex("a").is_err());
        }
        for word in [&b"18446744073709551616"[..], b"-1", b"1a", b"+1"] {
            assert!(Words::new(word).decimal("a").is_err());
        }
        for word in [&b"9223372036854775808"[..], b"-9223372036854775809", b"-", b"--1"] {
            assert!(Words::new(word).signed("a").is_err());
        }
    }
}
