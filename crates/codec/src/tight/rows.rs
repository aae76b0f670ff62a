//! The row byte: which exponents are usual in a row.

use super::column::BELOW;
use crate::{Error, tight::header::invalid};

/// The most that the window of a row may begin with.
const MOST_LOWEST: u8 = 120;
/// Marks a row whose exponents are stored one higher.
const RAISED: u8 = 0x80;

/// The byte of a row: the lowest of eight upper exponents (exponent / 2) in its low seven bits, and
/// whether exponents are raised by one before they are halved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RowByte(pub(super) u8);

impl RowByte {
    pub(super) fn parse(byte: u8) -> Result<Self, Error> {
        let found = Self(byte);
        if found.lowest() > MOST_LOWEST { Err(invalid("a row byte above 120")) } else { Ok(found) }
    }

    pub(super) fn lowest(self) -> u8 {
        self.0 & !RAISED
    }

    /// Returns the number that is added to the bits of each value.
    pub(super) fn raise(self) -> u16 {
        if self.0 & RAISED != 0 { 1 << 7 } else { 0 }
    }

    /// Chooses the byte that is expected to take the fewest bytes. Rows with zeros, subnormal
    /// numbers, infinities or values next to them are never raised: a linear layer multiplies by
    /// raised values and halves the sum.
    pub(super) fn choose(row: &[u8]) -> Self {
        let mut counts = [0u32; 257];
        for value in row.as_chunks().0 {
            counts[usize::from(u16::from_le_bytes(*value) >> 7 & 0xff)] += 1;
        }
        let total: u32 = counts.iter().sum();
        let raisable = counts[0] == 0 && counts[254] == 0 && counts[255] == 0;
        let mut best = (f64::INFINITY, Self(0));
        for raised in 0..=usize::from(raisable) {
            // Counts of the upper exponents, summed from the lowest on.
            let mut sums = [0u32; 129];
            for upper in 0..128 {
                let of = |exponent: usize| exponent.checked_sub(raised).map_or(0, |e| counts[e]);
                sums[upper + 1] = sums[upper] + of(2 * upper) + of(2 * upper + 1);
            }
            for lowest in 0..=usize::from(MOST_LOWEST) {
                let within = sums[lowest + 8] - sums[lowest];
                let usual = sums[lowest + BELOW + 4] - sums[lowest + BELOW];
                let bytes = expected_bytes(total, within, usual);
                if bytes < best.0 {
                    best = (bytes, Self(lowest as u8 | if raised == 1 { RAISED } else { 0 }));
                }
            }
        }
        best.1
    }
}

/// Returns the bytes of the extra words if unusual values were spread evenly.
fn expected_bytes(total: u32, within: u32, usual: u32) -> f64 {
    let groups = f64::from(total) / 16.0;
    let usual_share = 1.0 - f64::from(within - usual) / f64::from(total.max(1));
    let all_usual = (0..4).fold(usual_share, |share, _| share * share);
    2.0 * groups * (1.0 - all_usual) + 4.0 * f64::from(total - within)
}
