//! What a codec learned as one block of 32-bit words: what the GPU's kernels read (`fields.cuh` has the other side).
//!
//! The first [`FORMS_WORDS`] describe the forms, two words for each; then follows what is the codec's own.

use super::{
    Prefix, Rank, Scaled, Stride, Table,
    code::LONGEST,
    forms::{ABSENT, Forms},
    hash::Places,
    rank::NO_PLACE,
};
use crate::Codec;

/// Words that describe the forms.
pub(super) const FORMS_WORDS: usize = 32;
/// Words before a table's values: those of the forms, and eight about the table.
const TABLE_WORDS: usize = FORMS_WORDS + 8;

/// Words of a code of lengths.
const CODE_WORDS: usize = 136;
/// Set where a number and its code have more than 32 bits, and for a word that is not in a table.
const LONG: u32 = 32;

/// What an encoder needs of a number of some length: its code, with the number's top bit where that would stand behind it; then the bits of
/// the code, those of both that a word holds, the others, and all of them, a byte each.
fn put_words(code: u16, bits: u8, length: usize) -> [u32; 2] {
    let all = u32::from(bits) + length.saturating_sub(1) as u32;
    let top = if length > 0 { 1u32.unbounded_shl(all) } else { 0 };
    let long = if all > 32 { LONG } else { 0 };
    [
        u32::from(code) | top,
        u32::from(bits) | long | all.min(32) << 8 | all.saturating_sub(32) << 16 | all << 24,
    ]
}

/// What a decoder needs of a number whose code has so many bits: by how many bits a word of the stream is shifted up, so that the number's
/// are its highest; the bits of both that a word holds; by how many bits it is shifted back, or the code's bits if there are more; the
/// length, and in the top bit whether that is anything.
fn take_word(length: u8, bits: u8) -> u32 {
    let (length, bits) = (u32::from(length), u32::from(bits));
    let (after, any) = (length.saturating_sub(1), u32::from(length > 0) << 31);
    match bits + after {
        all @ ..=32 => ((32 - all) % 32) | all << 8 | (32 - after) << 16 | length << 24 | any,
        _ => LONG | 32 << 8 | bits << 16 | length << 24 | any,
    }
}

/// The two halves of a number, the low one first.
fn halves(number: u64) -> [u32; 2] {
    [number as u32, (number >> 32) as u32]
}

impl Codec {
    /// What the codec learned of its allocation, as kernels read it; empty for codecs whose kernels need no such block.
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
    /// For each form its width, the width of its first fields, the bits of an exception's rest and how many exceptions it
    /// has room for and one, a byte each; then the bits of the stream. A form that does not exist is zeros.
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
    /// Stride, order, shift, and how many fields are the first.
    fn block(&self) -> Vec<u32> {
        let (stride, order, shift) = self.shape();
        let own = [stride, order, shift, stride * order].map(u32::from);
        [self.forms().block(), own.to_vec()].concat()
    }
}

impl Scaled {
    /// The divisor, the least count, and one divided by the divisor.
    fn block(&self) -> Vec<u32> {
        let (divisor, least) = self.unit();
        let inverse = 1.0 / f64::from_bits(divisor);
        let own = [divisor, least as u64, inverse.to_bits()].map(halves);
        [self.forms().block(), own.concat()].concat()
    }
}

impl<const N: usize> Prefix<N> {
    /// Stride, order and how many words are the first; then for each of the two codes [two words](put_words) for every length of a
    /// number; then for each code [a word](take_word) for any next bits.
    fn block(&self) -> Vec<u32> {
        let (steps, codes) = self.parts();
        let mut words = vec![steps.stride.into(), steps.order.into(), steps.firsts() as u32, 0];
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
    /// How many values, the seed of the hash, the masks of buckets and slots and where in the block these begin; then
    /// the values, the buckets, and for each slot its value and the place and length of that.
    fn block(&self) -> Vec<u32> {
        let word = |value: u64| halves(value)[..2 * 16 / N].to_vec();
        let values: Vec<u32> = self.values().iter().flat_map(|&value| word(value)).collect();
        let places = Places::new(self.values());
        let buckets = TABLE_WORDS + values.len();
        let slots = (buckets + places.buckets().len()).next_multiple_of(4);
        let (bucket_mask, slot_mask) = (places.buckets().len() - 1, places.slots().len() - 1);
        let own = [self.values().len(), places.seed() as usize, bucket_mask, slot_mask, buckets, slots, 0, 0];
        let mut words = [self.forms().block(), own.map(|number| number as u32).to_vec(), values].concat();
        words.extend(places.buckets());
        words.resize(slots, 0);
        for &(value, number) in places.slots() {
            words.extend(word(value));
            // Longer than any place where there is none.
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
    /// The table's block, whose seventh number about the table says where the code begins: [two words](put_words) for each length of a
    /// place and for a word without one, with 255 bits in all where there is no code; then [a word](take_word) for any next bits.
    fn block(&self) -> Vec<u32> {
        let (table, code, bits) = self.parts();
        let mut words = table.block();
        words.resize(words.len().next_multiple_of(2), 0);
        words[FORMS_WORDS + 6] = words.len() as u32;
        for (symbol, (&(code, length), &all)) in code.codes().iter().zip(bits).enumerate() {
            let [first, second] = put_words(code, length, if symbol < NO_PLACE { symbol } else { 0 });
            let long = if symbol < NO_PLACE { 0 } else { LONG };
            words.extend([first, second & 0x00ff_ffff | long | all.min(255) << 24]);
        }
        words.extend(code.symbols().iter().map(|&(symbol, bits)| {
            if usize::from(symbol) < NO_PLACE { take_word(symbol, bits) } else { LONG | u32::from(bits) << 8 }
        }));
        words
    }
}
