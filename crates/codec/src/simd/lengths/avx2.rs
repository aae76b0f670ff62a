//! Bit lengths from float exponents, looked up with gathers, eight at a time.

use std::arch::x86_64::*;

use buddy_core::Entry;

use super::Lengths;

/// Masks of the words from a position on: element `i` is all ones from 16 on.
static FROM: [i32; 48] = {
    let mut masks = [-1; 48];
    let mut i = 0;
    while i < 16 {
        masks[i] = 0;
        i += 1;
    }
    masks
};
static FROM_WIDE: [i64; 24] = {
    let mut masks = [-1; 24];
    let mut i = 0;
    while i < 8 {
        masks[i] = 0;
        i += 1;
    }
    masks
};

/// Returns the float exponent of every 32-bit lane, 0 for 0. Bits below the top one are cleared if
/// they could round up.
#[inline]
#[target_feature(enable = "avx2")]
fn exponents(numbers: __m256i) -> __m256i {
    let top = _mm256_andnot_si256(_mm256_srli_epi32::<1>(numbers), numbers);
    _mm256_srli_epi32::<23>(_mm256_castps_si256(_mm256_cvtepi32_ps(top)))
}

/// Sums the table entries at eight offsets.
#[inline]
#[target_feature(enable = "avx2")]
fn found(lengths: &Lengths, places: __m256i) -> __m256i {
    // SAFETY: exponents with sign are below 512, those of upper halves below 1024, and the bases
    // are 0, 1024 or 2048. The table has two more entries after each.
    let found = unsafe { _mm256_i32gather_epi32::<2>(lengths.by_exponent.as_ptr().cast(), places) };
    _mm256_and_si256(found, _mm256_set1_epi32(0xffff))
}

#[inline]
#[target_feature(enable = "avx2")]
fn sum(parts: __m256i) -> u32 {
    let four = _mm_add_epi32(_mm256_castsi256_si128(parts), _mm256_extracti128_si256::<1>(parts));
    let two = _mm_add_epi32(four, _mm_shuffle_epi32::<0b01_00_11_10>(four));
    _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32::<0b10_11_00_01>(two))) as u32
}

/// Entries of 32 words.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn narrow(entry: &Entry, lengths: &Lengths) -> u32 {
    let from = entry.as_ptr().cast::<i32>();
    let mut all = _mm256_setzero_si256();
    for part in 0..4 {
        // SAFETY: `places` is at most 16, so eight masks are in bounds.
        let mask =
            |places: usize| unsafe { _mm256_loadu_si256(FROM.as_ptr().add(16 + 8 * part - places).cast()) };
        // SAFETY: the mask excludes words outside the entry.
        let before = |places: usize, mask: __m256i| unsafe {
            _mm256_maskload_epi32(from.wrapping_add(8 * part).wrapping_sub(places), mask)
        };
        let mut number = before(0, mask(0));
        if lengths.stride > 0 {
            let (stride, later) = (lengths.stride, mask(lengths.stride));
            let mut guess = before(stride, later);
            if lengths.twice {
                let latest = mask(2 * stride);
                let slope = _mm256_sub_epi32(guess, before(2 * stride, latest));
                guess = _mm256_add_epi32(guess, _mm256_and_si256(slope, latest));
            }
            if 8 * part < stride {
                let near = _mm256_andnot_si256(later, mask(1));
                guess = _mm256_or_si256(guess, before(1, near));
            }
            let difference = _mm256_sub_epi32(number, guess);
            number =
                _mm256_xor_si256(_mm256_slli_epi32::<1>(difference), _mm256_srai_epi32::<31>(difference));
        }
        // SAFETY: there are 32 offsets.
        let places = unsafe { _mm256_loadu_si256(lengths.places.as_ptr().add(8 * part).cast()) };
        all = _mm256_add_epi32(all, found(lengths, _mm256_add_epi32(exponents(number), places)));
    }
    sum(all)
}

/// Entries of 16 words.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn wide(entry: &Entry, lengths: &Lengths) -> u32 {
    let from = entry.as_ptr().cast::<i64>();
    let mut all = _mm256_setzero_si256();
    for part in 0..2 {
        // Per 64-bit word: the exponent of its upper half, or of the lower one if the upper is
        // zero.
        let four = |quarter: usize| {
            // SAFETY: `places` is at most 8, so four masks are in bounds.
            let mask = |places: usize| unsafe {
                _mm256_loadu_si256(FROM_WIDE.as_ptr().add(8 + 4 * quarter - places).cast())
            };
            // SAFETY: the mask excludes words outside the entry.
            let before = |places: usize, mask: __m256i| unsafe {
                _mm256_maskload_epi64(from.wrapping_add(4 * quarter).wrapping_sub(places), mask)
            };
            let mut number = before(0, mask(0));
            if lengths.stride > 0 {
                let (stride, later) = (lengths.stride, mask(lengths.stride));
                let mut guess = before(stride, later);
                if lengths.twice {
                    let latest = mask(2 * stride);
                    let slope = _mm256_sub_epi64(guess, before(2 * stride, latest));
                    guess = _mm256_add_epi64(guess, _mm256_and_si256(slope, latest));
                }
                if 4 * quarter < stride {
                    let near = _mm256_andnot_si256(later, mask(1));
                    guess = _mm256_or_si256(guess, before(1, near));
                }
                let difference = _mm256_sub_epi64(number, guess);
                let sign = _mm256_cmpgt_epi64(_mm256_setzero_si256(), difference);
                number = _mm256_xor_si256(_mm256_slli_epi64::<1>(difference), sign);
            }
            let exponents = exponents(number);
            let (low, high) = (exponents, _mm256_srli_epi64::<32>(exponents));
            let none = _mm256_cmpeq_epi32(high, _mm256_setzero_si256());
            _mm256_blendv_epi8(_mm256_add_epi32(high, _mm256_set1_epi32(512)), low, none)
        };
        // Lower halves of eight words, alternating two from each group of four.
        let pair = _mm256_shuffle_ps::<0b10_00_10_00>(
            _mm256_castsi256_ps(four(2 * part)),
            _mm256_castsi256_ps(four(2 * part + 1)),
        );
        // SAFETY: there are 32 offsets.
        let places = unsafe { _mm256_loadu_si256(lengths.places.as_ptr().add(8 * part).cast()) };
        // The order of the shuffle: 0, 1, 4, 5, 2, 3, 6, 7.
        let places = _mm256_permute4x64_epi64::<0b11_01_10_00>(places);
        all = _mm256_add_epi32(all, found(lengths, _mm256_add_epi32(_mm256_castps_si256(pair), places)));
    }
    sum(all)
}
