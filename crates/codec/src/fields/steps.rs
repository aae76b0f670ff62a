//! Words as differences from words before them: at a stride, once or twice.

use std::fmt;

use buddy_core::Entry;

use super::words;

/// How a word is guessed from those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Steps {
    /// How many words back the word is that another one is compared with.
    pub(super) stride: u8,
    /// 1 for differences, 2 for differences of differences.
    pub(super) order: u8,
    /// Low bits that are turned to the top first.
    pub(super) shift: u8,
}

impl Steps {
    /// How many of the first words have a guess of another kind than those after them.
    pub(super) fn firsts(self) -> usize {
        usize::from(self.stride * self.order)
    }

    /// What it is for words of which `N` make an entry.
    pub(super) fn describe<const N: usize>(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stride {}, period {} bytes", self.stride, usize::from(self.stride) * 128 / N)?;
        if self.order == 2 { f.write_str(", twice") } else { Ok(()) }
    }
}

/// The first word, then folded differences: 0, -1, 1, -2, 2 become 0, 1, 2, 3, 4.
#[inline(always)]
pub(super) fn numbers<const N: usize>(steps: Steps, entry: &Entry) -> [u64; N] {
    let mut numbers = differences(steps, entry);
    numbers[0] = turned::<N>(words::split::<N>(entry)[0], steps.shift.into());
    numbers
}

/// The [`numbers`] but for the first word, whose field holds any: for sizes.
///
/// Loops over what lies in memory become vectors. Arrays that are mapped do not, nor do loops whose first turn differs.
#[inline(always)]
pub(super) fn differences<const N: usize>(steps: Steps, entry: &Entry) -> [u64; N] {
    let (stride, order) = (usize::from(steps.stride), steps.order);
    let words = words::split::<N>(entry);
    // Zeros before the words: no stride, and no two where they count, are longer.
    let mut room = [0; 48];
    for i in 0..N {
        room[16 + i] = turned::<N>(words[i], steps.shift.into());
    }
    let before = |places: usize| room[16 - places.min(16)..].first_chunk::<N>().expect("room for all words");
    let (words, near, far, farther) = (before(0), before(1), before(stride), before(2 * stride));
    let sloped = if order == 2 { 2 * stride } else { N };
    let mut numbers = [0; N];
    for i in 0..N {
        let slope = if i < sloped { 0 } else { far[i].wrapping_sub(farther[i]) };
        let guess = if i < stride { near[i] } else { far[i].wrapping_add(slope) };
        numbers[i] = fold::<N>(words[i].wrapping_sub(guess));
    }
    numbers
}

/// A word turned right by so many bits.
#[inline(always)]
fn turned<const N: usize>(word: u64, shift: u32) -> u64 {
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

/// The words whose [`numbers`] these are.
#[inline(always)]
pub(super) fn restored<const N: usize>(steps: Steps, numbers: &[u64; N]) -> [u64; N] {
    let (stride, order) = (usize::from(steps.stride), steps.order);
    let mut words = [0u64; N];
    words[0] = numbers[0];
    for i in 1..N {
        let back = |places: usize| words[i - places];
        let guess = match i {
            _ if i < stride => back(1),
            _ if order == 1 || i < 2 * stride => back(stride),
            _ => back(stride).wrapping_mul(2).wrapping_sub(back(2 * stride)),
        };
        words[i] = guess.wrapping_add(unfold(numbers[i])) & words::mask(N);
    }
    let bits = words::bits(N);
    words.map(|word| turned::<N>(word, (bits - u32::from(steps.shift)) % bits))
}
