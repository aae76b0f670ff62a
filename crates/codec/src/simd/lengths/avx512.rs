//! Bit lengths from leading-zero counts, looked up in two registers.

use std::arch::x86_64::*;

use buddy_core::Entry;

use super::Lengths;

/// Entries of 32 words.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd")]
pub(super) fn narrow(entry: &Entry, lengths: &Lengths) -> u32 {
    let from = entry.as_ptr().cast::<i32>();
    // SAFETY: the mask excludes lanes outside the entry: it starts at the word `places` back.
    let before = |places: usize, half: usize, mask: u32| unsafe {
        let from = from.wrapping_add(16 * half).wrapping_sub(places);
        _mm512_maskz_loadu_epi32((mask >> (16 * half)) as u16, from)
    };
    let number = |half: usize| {
        let word = before(0, half, u32::MAX);
        if lengths.stride == 0 {
            return word;
        }
        let (stride, later) = (lengths.stride, u32::MAX << lengths.stride);
        let mut guess = before(stride, half, later);
        if lengths.twice {
            let latest = later << stride;
            let mask = (latest >> (16 * half)) as u16;
            let sloped = _mm512_add_epi32(guess, guess);
            guess = _mm512_mask_sub_epi32(guess, mask, sloped, before(2 * stride, half, latest));
        }
        if half == 0 {
            guess = _mm512_or_si512(guess, before(1, 0, !later & !1));
        }
        let difference = _mm512_sub_epi32(word, guess);
        _mm512_xor_si512(_mm512_slli_epi32::<1>(difference), _mm512_srai_epi32::<31>(difference))
    };
    // SAFETY: both halves of both tables are 64 bytes.
    let table = |kind: usize| unsafe {
        let table = lengths.by_leading_zeros[kind].as_ptr();
        (_mm512_loadu_si512(table.cast()), _mm512_loadu_si512(table.wrapping_add(32).cast()))
    };
    let look = |mask: u32, zeros: __m512i, (low, high): (__m512i, __m512i)| {
        _mm512_maskz_permutex2var_epi16(mask, low, zeros, high)
    };
    let (near, far, most) = (_mm512_lzcnt_epi32(number(0)), _mm512_lzcnt_epi32(number(1)), table(0));
    let mut sum = _mm512_add_epi32(look(lengths.masks[0], near, most), look(0x5555_5555, far, most));
    if lengths.masks[1] != 0 {
        sum = _mm512_add_epi32(sum, look(lengths.masks[1], near, table(1)));
    }
    _mm512_reduce_add_epi32(sum) as u32
}

/// Entries of 16 words.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd")]
pub(super) fn wide(entry: &Entry, lengths: &Lengths) -> u32 {
    let from = entry.as_ptr().cast::<i64>();
    // SAFETY: the mask excludes lanes outside the entry.
    let before = |places: usize, half: usize, mask: u32| unsafe {
        let from = from.wrapping_add(8 * half).wrapping_sub(places);
        _mm512_maskz_loadu_epi64((mask >> (8 * half)) as u8, from)
    };
    let number = |half: usize| {
        let word = before(0, half, u32::MAX);
        if lengths.stride == 0 {
            return word;
        }
        let (stride, later) = (lengths.stride, u32::MAX << lengths.stride);
        let mut guess = before(stride, half, later);
        if lengths.twice {
            let latest = later << stride;
            let mask = (latest >> (8 * half)) as u8;
            let sloped = _mm512_add_epi64(guess, guess);
            guess = _mm512_mask_sub_epi64(guess, mask, sloped, before(2 * stride, half, latest));
        }
        if half == 0 {
            guess = _mm512_or_si512(guess, before(1, 0, !later & !1));
        }
        let difference = _mm512_sub_epi64(word, guess);
        _mm512_xor_si512(_mm512_slli_epi64::<1>(difference), _mm512_srai_epi64::<63>(difference))
    };
    // SAFETY: both halves of both tables are 64 bytes.
    let table = |kind: usize| unsafe {
        let table = lengths.by_leading_zeros[kind].as_ptr();
        (_mm512_loadu_si512(table.cast()), _mm512_loadu_si512(table.wrapping_add(32).cast()))
    };
    let look = |mask: u32, number: __m512i, kind: usize| {
        let (low, high) = table(kind);
        // 64 leading zeros wrap to index 0, and are corrected.
        let found = _mm512_permutex2var_epi16(low, _mm512_lzcnt_epi64(number), high);
        let none = _mm512_testn_epi64_mask(number, number);
        let found = _mm512_mask_mov_epi64(found, none, _mm512_set1_epi64(lengths.of_zero[kind].into()));
        _mm512_maskz_mov_epi16(mask, found)
    };
    let (near, far) = (number(0), number(1));
    let mut sum = _mm512_add_epi64(look(lengths.masks[0], near, 0), look(0x1111_1111, far, 0));
    if lengths.masks[1] != 0 {
        sum = _mm512_add_epi64(sum, look(lengths.masks[1], near, 1));
    }
    _mm512_reduce_add_epi64(sum) as u32
}
