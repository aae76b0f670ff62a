//! Checksums: XXH3-128 in 32 hexadecimal digits, and texts that hold their own.

use std::{
    io::{self, Write},
    ops::Range,
};

use twox_hash::xxhash3_128::Hasher;

use crate::Error;

/// The digits of a text while its checksum is computed.
pub(crate) const UNSEALED: &str = "00000000000000000000000000000000";

/// Returns the checksum of some bytes.
pub(crate) fn of(bytes: &[u8]) -> String {
    text(Hasher::oneshot(bytes))
}

/// Returns a checksum as text.
pub(crate) fn text(checksum: u128) -> String {
    format!("{checksum:032x}")
}

/// Finds the digits behind the last `mark` of a text, such as `"checksum":"`.
fn digits(bytes: &[u8], mark: &str) -> Option<Range<usize>> {
    let at = bytes.windows(mark.len()).rposition(|part| part == mark.as_bytes())? + mark.len();
    (bytes.len() >= at + UNSEALED.len()).then_some(at..at + UNSEALED.len())
}

/// Writes the checksum of a text into the text, which has [`UNSEALED`] behind a mark, and returns
/// it.
pub(crate) fn seal(bytes: &mut [u8], mark: &str) -> Result<String, Error> {
    let sum = of(bytes);
    let place = digits(bytes, mark).ok_or(Error::Damaged)?;
    bytes[place].copy_from_slice(sum.as_bytes());
    Ok(sum)
}

/// Compares a text with the checksum behind a mark, and returns that.
pub(crate) fn unseal(bytes: &[u8], mark: &str) -> Result<String, Error> {
    let place = digits(bytes, mark).ok_or(Error::Damaged)?;
    let mut plain = bytes.to_vec();
    plain[place.clone()].copy_from_slice(UNSEALED.as_bytes());
    let sum = of(&plain);
    if bytes[place] == *sum.as_bytes() { Ok(sum) } else { Err(Error::Damaged) }
}

/// A writer that computes the checksum of what it passes on.
pub(crate) struct Summing<W> {
    to: W,
    hasher: Hasher,
}

impl<W: Write> Summing<W> {
    pub(crate) fn new(to: W) -> Self {
        Self { to, hasher: Hasher::new() }
    }

    /// Returns the checksum of all bytes.
    pub(crate) fn finish(self) -> String {
        text(self.hasher.finish_128())
    }
}

impl<W: Write> Write for Summing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.hasher.write(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_text_refuses_every_flipped_bit() {
        let mark = "\"checksum\": \"";
        let mut text = format!("{{\"a\": \"\\\"checksum\\\": \\\"\", {mark}{UNSEALED}\"}}").into_bytes();
        let sum = seal(&mut text, mark).unwrap();
        assert_eq!(unseal(&text, mark).unwrap(), sum);
        for bit in 0..8 * text.len() {
            let mut flipped = text.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(unseal(&flipped, mark).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn bytes_in_pieces_have_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..10_000u32).map(|i| (i * i) as u8).collect();
        let mut summing = Summing::new(io::sink());
        bytes.chunks(77).for_each(|part| summing.write_all(part).unwrap());
        assert_eq!(summing.finish(), of(&bytes));
    }
}
