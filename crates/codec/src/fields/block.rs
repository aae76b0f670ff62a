//! Codec parameters as one block of 32-bit words for the GPU kernels (see `fields.cuh`).
//!
//! The first [`FORMS_WORDS`] describe the forms, two words each; the codec's own parameters follow.

use super::{
    Prefix, Rank, Scaled, Stride, Table,
    code::LONGEST,
    forms::{ABSENT, Forms},
    hash::PerfectHash,
    rank::ESCAPE,
};
use crate::Codec;

/// Words that describe the forms.
pub(super) const FORMS_WORDS: usize = 32;
/// Words before the values of a table: the forms, and eight words about the table.
const TABLE_WORDS: usize = FORMS_WORDS + 8;

/// Words of a length code.
const CODE_WORDS: usize = 136;
/// Marks a number that exceeds 32 bits with its code, and a word that is not in the table.
const LONG: u32 = 32;

/// Returns the encoder's words for a number of `length` bits: the code, with the number's top bit
/// behind it, then four bytes: bits of the code, bits that fit in a word, remaining bits, and total
/// bits.
fn put_words(code: u16, bits: u8, length: usize) -> [u32; 2] {
    let all = u32::from(bits) + length.saturating_sub(1) as u32;
    let top = if length > 0 { 1u32.unbounded_shl(all) } else { 0 };
    let long = if all > 32 { LONG } else { 0 };
    [
        u32::from(code) | top,
        u32::from(bits) | long | all.min(32) << 8 | all.saturating_sub(32) << 16 | all << 24,
    ]
}

/// Returns the decoder's word for a number of `length` bits: left shift that aligns the number to
/// the top, bits that fit in a word, right shift (or the code bits, if longer), and the length with
/// a top bit for a nonzero number.
fn take_word(length: u8, bits: u8) -> u32 {
    let (length, bits) = (u32::from(length), u32::from(bits));
    let (after, any) = (length.saturating_sub(1), u32::from(length > 0) << 31);
    match bits + after {
        all @ ..=32 => ((32 - all) % 32) | all << 8 | (32 - after) << 16 | length << 24 | any,
        _ => LONG | 32 << 8 | bits << 16 | length << 24 | any,
    }
}

/// Splits a number into its low and high half.
fn halves(number: u64) -> [u32; 2] {
    [number as u32, (number >> 32) as u32]
}

impl Codec {
    /// Returns the parameters in the kernels' format; empty for codecs that need none.
    pub fn block(&self) -> Vec<u32> {
        match self {
            Self::Table32(codec) => codec.block(),
            Self::Table64(codec) => codec.block(),
            Self::Stride32(codec) => codec.block(),
            Self::Stride64(codec) => codec.block(),
            Self::Scaled64(codec) => codec.block(),
            Self::Prefix32(codec) => codec.block(),
            Self::Prefix64(codec) => codec.block(),
            Self::Rank32(codec) => codec.block(),
            Self::Rank64(codec) => codec.block(),
            _ => Vec::new(),
        }
    }
}

impl<const N: usize> Forms<N> {
    /// Packs for each form, one byte each: field width, width of the first fields, payload bits of
    /// an exception, and maximum number of exceptions plus one. The second word is the stream
    /// length in bits. Forms that do not exist are zeros.
    pub(super) fn block(&self) -> Vec<u32> {
        let words = self.shapes().flat_map(|shape| {
            shape.map_or([0; 2], |shape| {
                let parts = [shape.width, shape.first, shape.rest_bits as u8, shape.exceptions as u8 + 1];
                [u32::from_le_bytes(parts), shape.bits]
            })
        });
        let mut words: Vec<u32> = words.collect();
        words.resize(FORMS_WORDS, 0);
        words
    }
}

impl<const N: usize> Stride<N> {
    /// Appends stride, order, shift, and the number of first fields.
    fn block(&self) -> Vec<u32> {
        let (stride, order, shift) = self.shape();
        let own = [stride, order, shift, stride * order].map(u32::from);
        [self.forms().block(), own.to_vec()].concat()
    }
}

impl Scaled {
    /// Appends the divisor, the minimum count, and the reciprocal of the divisor.
    fn block(&self) -> Vec<u32> {
        let (divisor, least) = self.unit();
        let inverse = 1.0 / f64::from_bits(divisor);
        let own = [divisor, least as u64, inverse.to_bits()].map(halves);
        [self.forms().block(), own.concat()].concat()
    }
}

impl<const N: usize> Prefix<N> {
    /// Appends stride, order and the number of first words; then per code [two words](put_words)
    /// for every length, and [a word](take_word) for every lookahead.
    fn block(&self) -> Vec<u32> {
        let (predictor, codes) = self.parts();
        let mut words = vec![predictor.stride.into(), predictor.order.into(), predictor.firsts() as u32, 0];
        for (index, code) in codes.iter().enumerate() {
            let each = code.code.codes().iter().enumerate();
            words.extend(each.flat_map(|(length, &(code, bits))| put_words(code, bits, length)));
            words.resize(4 + CODE_WORDS * (index + 1), 0);
        }
        for code in codes {
            words.extend(code.code.symbols().iter().map(|&(length, bits)| take_word(length, bits)));
        }
        debug_assert_eq!(words.len(), 4 + 2 * CODE_WORDS + (2 << LONGEST));
        words
    }
}

impl<const N: usize> Table<N> {
    /// Appends the number of values, hash seed, bucket and slot masks and offsets; then the values,
    /// the buckets, and per slot its value with its index and length.
    fn block(&self) -> Vec<u32> {
        let word = |value: u64| halves(value)[..2 * 16 / N].to_vec();
        let values: Vec<u32> = self.values().iter().flat_map(|&value| word(value)).collect();
        let places = PerfectHash::new(self.values());
        let buckets = TABLE_WORDS + values.len();
        let slots = (buckets + places.buckets().len()).next_multiple_of(4);
        let (bucket_mask, slot_mask) = (places.buckets().len() - 1, places.slots().len() - 1);
        let own = [self.values().len(), places.seed() as usize, bucket_mask, slot_mask, buckets, slots, 0, 0];
        let mut words = [self.forms().block(), own.map(|number| number as u32).to_vec(), values].concat();
        words.extend(places.buckets());
        words.resize(slots, 0);
        for &(value, number) in places.slots() {
            words.extend(word(value));
            // An empty slot has a length above that of any index.
            words.push(if number == ABSENT {
                127 << 16
            } else {
                number as u32 | (64 - number.leading_zeros()) << 16
            });
            words.resize(words.len().next_multiple_of(4 * 16 / N), 0);
        }
        words
    }
}

impl<const N: usize> Rank<N> {
    /// Appends the table's block, whose seventh word is the offset of the code. The code has [two
    /// words](put_words) for each index length and for the escape, with 255 total bits if unused,
    /// and [a word](take_word) for every lookahead.
    fn block(&self) -> Vec<u32> {
        let (table, code, bits) = self.parts();
        let mut words = table.block();
        words.resize(words.len().next_multiple_of(2), 0);
        words[FORMS_WORDS + 6] = words.len() as u32;
        for (symbol, (&(code, length), &all)) in code.codes().iter().zip(bits).enumerate() {
            let [first, second] = put_words(code, length, if symbol < ESCAPE { symbol } else { 0 });
            let long = if symbol < ESCAPE { 0 } else { LONG };
            words.extend([first, second & 0x00ff_ffff | long | all.min(255) << 24]);
        }
        words.extend(code.symbols().iter().map(|&(symbol, bits)| {
            if usize::from(symbol) < ESCAPE { take_word(symbol, bits) } else { LONG | u32::from(bits) << 8 }
        }));
        words
    }
}
