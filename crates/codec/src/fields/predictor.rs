//! Stride predictor: first or second differences of words, zigzag-coded.

use std::fmt;

use buddy_core::Entry;

use super::words;

/// Predictor of a word from earlier words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Predictor {
    /// Distance in words to the reference word.
    pub(super) stride: u8,
    /// 1 for first differences, 2 for second differences.
    pub(super) order: u8,
    /// Bits by which words are first rotated right.
    pub(super) shift: u8,
}

impl Predictor {
    /// Returns the number of leading words that are predicted differently.
    pub(super) fn firsts(self) -> usize {
        usize::from(self.stride * self.order)
    }

    /// Describes the predictor for entries of `N` words.
    pub(super) fn describe<const N: usize>(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stride {}, period {} bytes", self.stride, usize::from(self.stride) * 128 / N)?;
        if self.order == 2 { f.write_str(", twice") } else { Ok(()) }
    }
}

/// Returns the first word, then zigzag-coded residuals: 0, -1, 1, -2, 2 become 0, 1, 2, 3, 4.
#[inline(always)]
pub(super) fn residuals<const N: usize>(predictor: Predictor, entry: &Entry) -> [u64; N] {
    let mut residuals = differences(predictor, entry);
    residuals[0] = rotated::<N>(words::split::<N>(entry)[0], predictor.shift.into());
    residuals
}

/// Returns the residuals with 0 in place of the first word, which fits any first field: for sizes.
///
/// Written as loops over memory, which vectorise; mapped arrays and loops with a special first
/// iteration do not.
#[inline(always)]
pub(super) fn differences<const N: usize>(predictor: Predictor, entry: &Entry) -> [u64; N] {
    let (stride, order) = (usize::from(predictor.stride), predictor.order);
    let words = words::split::<N>(entry);
    // Zeros before the words, at least as many as two strides.
    let mut padded = [0; 48];
    for i in 0..N {
        padded[16 + i] = rotated::<N>(words[i], predictor.shift.into());
    }
    let before =
        |places: usize| padded[16 - places.min(16)..].first_chunk::<N>().expect("padding covers two strides");
    let (words, near, far, farther) = (before(0), before(1), before(stride), before(2 * stride));
    let sloped = if order == 2 { 2 * stride } else { N };
    let mut residuals = [0; N];
    for i in 0..N {
        let slope = if i < sloped { 0 } else { far[i].wrapping_sub(farther[i]) };
        let guess = if i < stride { near[i] } else { far[i].wrapping_add(slope) };
        residuals[i] = fold::<N>(words[i].wrapping_sub(guess));
    }
    residuals
}

/// Rotates a word right by `shift` bits.
#[inline(always)]
fn rotated<const N: usize>(word: u64, shift: u32) -> u64 {
    if N == 32 { (word | word << 32) >> shift & words::mask(N) } else { word.rotate_right(shift) }
}

#[inline(always)]
fn fold<const N: usize>(difference: u64) -> u64 {
    let sign = (difference >> (words::bits(N) - 1) & 1).wrapping_neg();
    (difference << 1 ^ sign) & words::mask(N)
}

#[inline(always)]
fn unfold(number: u64) -> u64 {
    number >> 1 ^ (number & 1).wrapping_neg()
}

/// Reconstructs the words from their residuals.
#[inline(always)]
pub(super) fn reconstruct<const N: usize>(predictor: Predictor, residuals: &[u64; N]) -> [u64; N] {
    let (stride, order) = (usize::from(predictor.stride), predictor.order);
    let mut words = [0u64; N];
    words[0] = residuals[0];
    for i in 1..N {
        let back = |places: usize| words[i - places];
        let guess = match i {
            _ if i < stride => back(1),
            _ if order == 1 || i < 2 * stride => back(stride),
            _ => back(stride).wrapping_mul(2).wrapping_sub(back(2 * stride)),
        };
        words[i] = guess.wrapping_add(unfold(residuals[i])) & words::mask(N);
    }
    let bits = words::bits(N);
    words.map(|word| rotated::<N>(word, (bits - u32::from(predictor.shift)) % bits))
}
