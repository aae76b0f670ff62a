//! Lookups and counts with AVX2.

use std::arch::x86_64::*;

use buddy_core::Entry;

use super::{Found, Lookup};

#[inline]
#[target_feature(enable = "avx2")]
fn vectors(found: &Found) -> [__m256i; 4] {
    let mut vectors = [_mm256_setzero_si256(); 4];
    for (vector, bytes) in vectors.iter_mut().zip(found.0.as_chunks::<32>().0) {
        // SAFETY: the chunk holds 32 bytes; the load needs no alignment.
        *vector = unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) };
    }
    vectors
}

/// Counts the 32-bit lanes of four vectors that are all ones; other lanes are zero.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn lanes_set([a, b, c, d]: [__m256i; 4]) -> u32 {
    let bytes = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    (_mm256_movemask_epi8(bytes) as u32).count_ones()
}

pub(super) mod u32 {
    use super::*;

    /// # Safety
    /// The table must be valid.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(in super::super) unsafe fn find(entry: &Entry, table: &Lookup<'_, u32>) -> Found {
        debug_assert!(table.is_valid());
        let multiplier = _mm256_set1_epi32(table.multiplier as i32);
        let low = _mm256_set1_epi32(table.slots.len() as i32 - 1);
        let number = _mm256_set1_epi32(0xffff);
        let shift = _mm_cvtsi32_si128(table.shift() as i32);
        let mut found = Found([0; 128]);
        for (found, words) in found.0.as_chunks_mut::<32>().0.iter_mut().zip(entry.as_chunks::<32>().0) {
            // SAFETY: source and destination hold a vector; no alignment is needed. The shift keeps
            // the bucket in bounds, and the padding covers the two extra bytes read. The slot is
            // masked below the power of two.
            unsafe {
                let words = _mm256_loadu_si256(words.as_ptr().cast());
                let folded = _mm256_xor_si256(words, _mm256_srli_epi32::<16>(words));
                let product = _mm256_mullo_epi32(folded, multiplier);
                let hash = _mm256_xor_si256(product, _mm256_srli_epi32::<16>(product));
                let bucket = _mm256_srl_epi32(hash, shift);
                let bucket = _mm256_i32gather_epi32::<2>(table.buckets.as_ptr().cast(), bucket);
                let place = _mm256_xor_si256(hash, _mm256_and_si256(bucket, number));
                let place = _mm256_and_si256(place, low);
                let slot = _mm256_i32gather_epi32::<4>(table.slots.as_ptr().cast(), place);
                let rest = _mm256_xor_si256(slot, _mm256_andnot_si256(low, hash));
                _mm256_storeu_si256(found.as_mut_ptr().cast(), rest);
            }
        }
        found
    }

    #[inline]
    #[target_feature(enable = "avx2,popcnt")]
    pub(in super::super) fn count_from(found: &Found, first: u32) -> u32 {
        let first = _mm256_set1_epi32(first as i32);
        let from = |numbers| _mm256_cmpeq_epi32(_mm256_max_epu32(numbers, first), numbers);
        lanes_set(vectors(found).map(from))
    }
}

pub(super) mod u64 {
    use super::*;

    /// # Safety
    /// The table must be valid.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(in super::super) unsafe fn find(entry: &Entry, table: &Lookup<'_, u64>) -> Found {
        debug_assert!(table.is_valid());
        let multiplier = _mm256_set1_epi64x(table.multiplier as i64);
        let low = _mm256_set1_epi64x(table.slots.len() as i64 - 1);
        let number = _mm256_set1_epi64x(0xffff);
        let shift = _mm_cvtsi32_si128(table.shift() as i32);
        let mut found = Found([0; 128]);
        for (found, words) in found.0.as_chunks_mut::<32>().0.iter_mut().zip(entry.as_chunks::<32>().0) {
            // SAFETY: source and destination hold a vector; no alignment is needed. The shift keeps
            // the bucket in bounds, and the padding covers the six extra bytes read. The slot is
            // masked below the power of two.
            unsafe {
                let words = _mm256_loadu_si256(words.as_ptr().cast());
                let folded = _mm256_xor_si256(words, _mm256_srli_epi64::<32>(words));
                let product = multiply(folded, multiplier);
                let hash = _mm256_xor_si256(product, _mm256_srli_epi64::<32>(product));
                let bucket = _mm256_srl_epi64(hash, shift);
                let bucket = _mm256_i64gather_epi64::<2>(table.buckets.as_ptr().cast(), bucket);
                let place = _mm256_xor_si256(hash, _mm256_and_si256(bucket, number));
                let place = _mm256_and_si256(place, low);
                let slot = _mm256_i64gather_epi64::<8>(table.slots.as_ptr().cast(), place);
                let rest = _mm256_xor_si256(slot, _mm256_andnot_si256(low, hash));
                _mm256_storeu_si256(found.as_mut_ptr().cast(), rest);
            }
        }
        found
    }

    /// Multiplies 64-bit lanes, low halves; AVX2 has no such instruction.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn multiply(left: __m256i, right: __m256i) -> __m256i {
        let crossed = _mm256_mullo_epi32(left, _mm256_shuffle_epi32::<0b10_11_00_01>(right));
        let crossed = _mm256_add_epi32(crossed, _mm256_srli_epi64::<32>(crossed));
        _mm256_add_epi64(_mm256_mul_epu32(left, right), _mm256_slli_epi64::<32>(crossed))
    }

    #[inline]
    #[target_feature(enable = "avx2,popcnt")]
    pub(in super::super) fn count_from(found: &Found, first: u64) -> u32 {
        // AVX2 compares only signed lanes.
        let top = _mm256_set1_epi64x(i64::MIN);
        let first = _mm256_xor_si256(_mm256_set1_epi64x(first as i64), top);
        let below = |numbers| _mm256_cmpgt_epi64(first, _mm256_xor_si256(numbers, top));
        16 - lanes_set(vectors(found).map(below)) / 2
    }
}
