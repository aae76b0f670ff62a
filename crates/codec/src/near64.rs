//! Doubles close to each other: 28-bit differences from one base (`docs/reference/format.md`,
//! "near64").
//!
//! Made for kernels that compute in compressed memory, where instructions cost more than bits: a
//! value is a shift, a mask and an addition, and four threads decode an entry, 16 bytes each. An
//! entry takes two sectors or is raw.

use buddy_core::{ENTRY_BITS, Entry, Layout};
use serde::{Deserialize, Serialize};

use crate::{
    EntryCodec, Error, Stream,
    bits::{LsbReader, LsbWriter},
    codec::require_layout_a,
    lanes::{self, MAX_LANES},
};

/// Bits of a difference.
const WIDTH: u32 = 28;
/// Values per entry, and threads that share them.
const VALUES: usize = 16;
const QUARTERS: usize = 4;
/// Index of the value that determines the base, and its offset in the range of differences.
const MIDDLE: usize = 8;
const BIAS: u64 = 1 << (WIDTH - 1);
/// Bits of the form number, stored where the base of a near entry has zeros.
const FORM_BITS: u32 = 16;
const NEAR: u64 = 0;
const RAW: u64 = 1;
/// Stream bits of the two forms.
const NEAR_BITS: u32 = QUARTERS as u32 * (4 * WIDTH + FORM_BITS);
const RAW_BITS: u32 = 4 * WIDTH + FORM_BITS + ENTRY_BITS;

/// Fixed-width differences of 64-bit words from a base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Near64;

impl EntryCodec for Near64 {
    fn max_bits(&self) -> u32 {
        RAW_BITS
    }

    #[inline(always)]
    fn size_bits(&self, entry: &Entry) -> u32 {
        let words = lanes::split::<64>(entry);
        if is_near(&words, base_of(&words)) { NEAR_BITS } else { RAW_BITS }
    }

    #[inline(always)]
    fn encode(&self, entry: &Entry, stream: &mut Stream) {
        let words = lanes::split::<64>(entry);
        let base = base_of(&words);
        let mut writer = LsbWriter::new(stream);
        if is_near(&words, base) {
            for quarter in 0..QUARTERS {
                words[4 * quarter..][..4].iter().for_each(|word| writer.put(word.wrapping_sub(base), WIDTH));
                // In quarter 0 these bits are zero, which is the form number.
                writer.put(base >> (16 * quarter) & 0xffff, FORM_BITS);
            }
        } else {
            (0..4).for_each(|_| writer.put(0, WIDTH));
            writer.put(RAW, FORM_BITS);
            words[..VALUES].iter().for_each(|&word| writer.put(word, 64));
        }
        writer.finish();
    }

    #[inline(always)]
    fn decode(&self, stream: &[u8], layout: Layout) -> Result<Entry, Error> {
        require_layout_a(layout)?;
        let mut reader = LsbReader::new(stream);
        let (mut words, mut base) = ([0; MAX_LANES], 0);
        for quarter in 0..QUARTERS {
            for word in &mut words[4 * quarter..][..4] {
                *word = reader.take(WIDTH)?;
            }
            base |= reader.take(FORM_BITS)? << (16 * quarter);
            match (quarter, base) {
                (0, NEAR) | (1.., _) => {}
                (0, RAW) => return read_raw(&mut reader),
                _ => return Err(Error::Invalid { at: 112, what: "unknown form" }),
            }
        }
        words[..VALUES].iter_mut().for_each(|word| *word = word.wrapping_add(base));
        Ok(lanes::join::<64>(&words))
    }
}

fn read_raw(reader: &mut LsbReader) -> Result<Entry, Error> {
    let mut words = [0; MAX_LANES];
    for word in &mut words[..VALUES] {
        *word = reader.take(64)?;
    }
    Ok(lanes::join::<64>(&words))
}

/// Returns the base, which centres the range of differences on the middle value.
#[inline(always)]
fn base_of(words: &[u64; MAX_LANES]) -> u64 {
    words[MIDDLE].wrapping_sub(BIAS) & !0xffff
}

#[inline(always)]
fn is_near(words: &[u64; MAX_LANES], base: u64) -> bool {
    words[..VALUES].iter().fold(0, |all, word| all | word.wrapping_sub(base)) >> WIDTH == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn of(words: [u64; VALUES]) -> Entry {
        testing::entry_of(words.map(u64::to_le_bytes))
    }

    /// The range ends 2^27 above the middle value, and 2^27 below it up to the rounding of the
    /// base.
    #[test]
    fn values_at_the_edges_of_the_range_are_near() {
        let middle = 1.5f64.to_bits();
        for (there, near) in [(BIAS - 1, true), (BIAS, false), (BIAS.wrapping_neg(), true)] {
            let mut words = [middle; VALUES];
            words[3] = middle.wrapping_add(there);
            let bits = if near { 512 } else { 1152 };
            assert_eq!(Near64.size_bits(&of(words)), bits, "{there:#x}");
        }
        let mut words = [middle; VALUES];
        words[15] = middle - BIAS - 1;
        assert_eq!(Near64.size_bits(&of(words)), 1152);
    }

    #[test]
    fn an_unknown_form_is_an_error() {
        let mut stream = Stream::default();
        Near64.encode(&of([7; VALUES]), &mut stream);
        let mut bytes = stream.bytes().to_vec();
        bytes[14] = 2;
        assert!(matches!(Near64.decode(&bytes, Layout::A), Err(Error::Invalid { at: 112, .. })));
    }

    #[test]
    fn near64_satisfies_the_contract() {
        testing::contract(&Near64, &testing::samples());
    }
}
