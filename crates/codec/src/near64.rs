//! Doubles close to each other: differences of 28 bits from one base, where any value is a shift, a mask and an addition
//! (`docs/reference/format.md`, "near64").
//!
//! Made for kernels that work in compressed memory, whose cost is instructions and not bits: four threads decode an
//! entry, 16 bytes each, and write one. All or nothing: two sectors, or none saved.

use buddy_core::{ENTRY_BITS, Entry, Layout};
use serde::{Deserialize, Serialize};

use crate::{
    EntryCodec, Error, Stream,
    bits::{LsbReader, LsbWriter},
    codec::only_a,
    lanes::{self, MOST},
};

/// Bits of a difference.
const WIDTH: u32 = 28;
/// Values, and threads that share them.
const VALUES: usize = 16;
const QUARTERS: usize = 4;
/// The value that the base follows from, and its place in the window of differences.
const MIDDLE: usize = 8;
const BIAS: u64 = 1 << (WIDTH - 1);
/// Where a near entry's base has zeros, the form of the stream stands.
const FORM_BITS: u32 = 16;
const NEAR: u64 = 0;
const RAW: u64 = 1;
/// Bits of the two forms.
const NEAR_BITS: u32 = QUARTERS as u32 * (4 * WIDTH + FORM_BITS);
const RAW_BITS: u32 = 4 * WIDTH + FORM_BITS + ENTRY_BITS;

/// Differences of 64-bit words from a base, of a fixed width.
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
                // Of quarter 0 these are zeros, which is the form.
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
        only_a(layout)?;
        let mut reader = LsbReader::new(stream);
        let (mut words, mut base) = ([0; MOST], 0);
        for quarter in 0..QUARTERS {
            for word in &mut words[4 * quarter..][..4] {
                *word = reader.take(WIDTH)?;
            }
            base |= reader.take(FORM_BITS)? << (16 * quarter);
            match (quarter, base) {
                (0, NEAR) | (1.., _) => {}
                (0, RAW) => return read_raw(&mut reader),
                _ => return Err(Error::Invalid { at: 112, what: "a form that does not exist" }),
            }
        }
        words[..VALUES].iter_mut().for_each(|word| *word = word.wrapping_add(base));
        Ok(lanes::join::<64>(&words))
    }
}

fn read_raw(reader: &mut LsbReader) -> Result<Entry, Error> {
    let mut words = [0; MOST];
    for word in &mut words[..VALUES] {
        *word = reader.take(64)?;
    }
    Ok(lanes::join::<64>(&words))
}

/// What the differences are from: the middle of the window is the value in the middle.
#[inline(always)]
fn base_of(words: &[u64; MOST]) -> u64 {
    words[MIDDLE].wrapping_sub(BIAS) & !0xffff
}

#[inline(always)]
fn is_near(words: &[u64; MOST], base: u64) -> bool {
    words[..VALUES].iter().fold(0, |all, word| all | word.wrapping_sub(base)) >> WIDTH == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn of(words: [u64; VALUES]) -> Entry {
        testing::entry_of(words.map(u64::to_le_bytes))
    }

    /// The window ends 2^27 above the middle, and 2^27 below it as far as the base is rounded.
    #[test]
    fn the_window_has_its_edges() {
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
    fn a_form_that_does_not_exist_is_refused() {
        let mut stream = Stream::default();
        Near64.encode(&of([7; VALUES]), &mut stream);
        let mut bytes = stream.bytes().to_vec();
        bytes[14] = 2;
        assert!(matches!(Near64.decode(&bytes, Layout::A), Err(Error::Invalid { at: 112, .. })));
    }

    #[test]
    fn the_contract_is_kept() {
        testing::contract(&Near64, &testing::samples());
    }
}
