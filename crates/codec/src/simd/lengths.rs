//! Sums of code bits over an entry's numbers by bit length, vectorised.
//!
//! Numbers are words or zigzag-coded residuals, as in `fields/predictor.rs`; here they stay in
//! registers.

use buddy_core::Entry;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

/// Entries of [`Lengths::by_exponent`] per code.
const EXPONENTS: usize = 1024;

/// Code bits by number length under two codes, in the layout of the vector code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lengths {
    /// Distance in words to the reference word; 0 codes the words themselves.
    stride: usize,
    /// True for second differences.
    twice: bool,
    /// Code bits by leading zeros, for the rest and for the leading numbers.
    by_leading_zeros: [[u16; 64]; 2],
    /// Code bits of the number 0, for both; 64 leading zeros exceed the table.
    of_zero: [u16; 2],
    /// 16-bit lane masks of the first vector for the rest and for the leading numbers.
    masks: [u32; 2],
    /// Code bits by float exponent (with sign), then by that of the upper half; then the same for
    /// the leading numbers.
    by_exponent: Vec<u16>,
    /// Offset in `by_exponent` for each number.
    places: [i32; 32],
}

impl Lengths {
    /// Creates the tables for entries of `N` words from the code bits by length: for the rest, and
    /// for the leading numbers. With a predictor the first number counts nothing.
    pub(crate) fn new<const N: usize>(stride: usize, order: usize, bits: [&[u16]; 2]) -> Self {
        let (width, firsts) = (1024 / N, stride * order);
        let zeros = |bits: &[u16]| {
            std::array::from_fn(|zeros| width.checked_sub(zeros).map_or(0, |length| bits[length]))
        };
        let lane = 512 / width;
        let mask = |range: std::ops::Range<usize>| range.fold(0, |mask, i| mask | 1 << (i * 32 / lane));
        let place = |i: usize| if i >= firsts { 0 } else if i > 0 { 2 } else { 1 } * EXPONENTS as i32;
        Self {
            stride,
            twice: order == 2,
            by_leading_zeros: bits.map(zeros),
            of_zero: bits.map(|bits| bits[0]),
            masks: [mask(firsts..lane), mask(firsts.min(1)..firsts)],
            by_exponent: [exponents(bits[0]), vec![0; EXPONENTS], exponents(bits[1]), vec![0; 2]].concat(),
            places: std::array::from_fn(place),
        }
    }
}

/// Returns code bits by float exponent; 1 has exponent 127. A number with the top bit of a word set
/// converts to a negative float.
fn exponents(bits: &[u16]) -> Vec<u16> {
    let mut table = vec![0; EXPONENTS];
    table[0] = bits[0];
    for (half, bits) in bits[1..].chunks(32).enumerate() {
        let table = &mut table[512 * half..];
        bits.iter().enumerate().for_each(|(top, &bits)| table[127 + top] = bits);
        if let Some(&bits) = bits.get(31) {
            table[256 + 127..512].fill(bits);
        }
    }
    table
}

impl Lengths {
    /// Returns the code bits of a word of `bits` bits that is not a leading one.
    #[inline(always)]
    pub(crate) fn of_word(&self, word: u64, bits: u32) -> u32 {
        let zeros = word.leading_zeros() - (64 - bits);
        u32::from(if word == 0 { self.of_zero[0] } else { self.by_leading_zeros[0][zeros as usize] })
    }
}

/// Returns the total code bits of an entry's numbers; `None` without vector instructions.
#[inline(always)]
pub(crate) fn sum_of_lengths<const N: usize>(entry: &Entry, lengths: &Lengths) -> Option<u32> {
    debug_assert!(lengths.stride <= N / 2 && lengths.by_exponent.len() == 3 * EXPONENTS + 2);
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        // SAFETY: the CPU has these features.
        return Some(unsafe {
            if N == 32 { avx512::narrow(entry, lengths) } else { avx512::wide(entry, lengths) }
        });
    }
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has AVX2.
        return Some(unsafe { sum_with_avx2::<N>(entry, lengths) });
    }
    let _ = entry;
    None
}

/// AVX2 version of [`sum_of_lengths`].
///
/// # Safety
/// The CPU must have AVX2.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) unsafe fn sum_with_avx2<const N: usize>(entry: &Entry, lengths: &Lengths) -> u32 {
    // SAFETY: the caller guarantees AVX2.
    unsafe { if N == 32 { avx2::narrow(entry, lengths) } else { avx2::wide(entry, lengths) } }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512cd")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{Noise, fill};

    /// Scalar reference, from the definition.
    fn reference<const N: usize>(entry: &Entry, stride: usize, order: usize, bits: [&[u16]; 2]) -> u32 {
        let bytes = 128 / N;
        let word = |i: usize| -> u64 {
            let mut word = [0; 8];
            word[..bytes].copy_from_slice(&entry[bytes * i..bytes * (i + 1)]);
            u64::from_le_bytes(word)
        };
        let shift = 64 - 8 * bytes as u32;
        let number = |i: usize| {
            let guess = match i {
                _ if stride == 0 => return word(i),
                0 => 0,
                _ if i < stride => word(i - 1),
                _ if order == 1 || i < 2 * stride => word(i - stride),
                _ => word(i - stride).wrapping_mul(2).wrapping_sub(word(i - 2 * stride)),
            };
            let difference = (word(i).wrapping_sub(guess) << shift) as i64 >> shift;
            ((difference << 1 ^ difference >> 63) as u64) << shift >> shift
        };
        let firsts = stride * order;
        let taken =
            |i: usize| u32::from(bits[usize::from(i < firsts)][64 - number(i).leading_zeros() as usize]);
        (firsts.min(1)..N).map(taken).sum()
    }

    fn compare<const N: usize>() {
        let mut noise = Noise(N as u64);
        let shapes = (0..=N / 2).map(|stride| (stride, 1)).chain((1..=N / 4).map(|stride| (stride, 2)));
        for (stride, order) in shapes {
            let tables =
                [0, 1].map(|_| (0..=1024 / N).map(|_| noise.next() as u16 % 1500).collect::<Vec<u16>>());
            let bits = [&tables[0][..], &tables[1][..]];
            let lengths = Lengths::new::<N>(stride, order, bits);
            for round in 0..200 {
                // Words of every length, some equal to earlier ones.
                let mut last = 0;
                let entry = fill(|_| {
                    let (next, how) = (noise.next(), noise.next());
                    last = match round {
                        0 => 0,
                        1 => u64::MAX,
                        _ if how % 3 == 0 => last,
                        _ if how % 3 == 1 => last.wrapping_add(next >> ((how >> 8) % 64)),
                        _ => next >> ((how >> 8) % 64),
                    };
                    last.to_le_bytes()
                });
                let wanted = reference::<N>(&entry, stride, order, bits);
                if let Some(found) = sum_of_lengths::<N>(&entry, &lengths) {
                    assert_eq!(found, wanted, "stride {stride}, order {order}");
                }
                #[cfg(target_arch = "x86_64")]
                if is_x86_feature_detected!("avx2") {
                    // SAFETY: the CPU has AVX2.
                    let found = unsafe { sum_with_avx2::<N>(&entry, &lengths) };
                    assert_eq!(found, wanted, "AVX2, stride {stride}, order {order}");
                }
            }
        }
    }

    #[test]
    fn vector_sums_equal_the_scalar_reference() {
        compare::<32>();
        compare::<16>();
    }
}
