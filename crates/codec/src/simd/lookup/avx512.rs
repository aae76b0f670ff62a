//! Lookups and counts with AVX-512.

use std::arch::x86_64::*;

use buddy_core::Entry;

use super::{Found, Lookup};

pub(super) mod u32 {
    use super::*;

    /// # Safety
    /// The table must be valid.
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq")]
    pub(in super::super) unsafe fn find(entry: &Entry, table: &Lookup<'_, u32>) -> Found {
        debug_assert!(table.is_valid());
        let multiplier = _mm512_set1_epi32(table.multiplier as i32);
        let low = _mm512_set1_epi32(table.slots.len() as i32 - 1);
        let number = _mm512_set1_epi32(0xffff);
        let shift = _mm_cvtsi32_si128(table.shift() as i32);
        let mut found = Found([0; 128]);
        for (found, words) in found.0.as_chunks_mut::<64>().0.iter_mut().zip(entry.as_chunks::<64>().0) {
            // SAFETY: source and destination hold a vector; no alignment is needed. The shift keeps
            // the bucket in bounds, and the padding covers the two extra bytes read. The slot is
            // masked below the power of two.
            unsafe {
                let words = _mm512_loadu_si512(words.as_ptr().cast());
                let folded = _mm512_xor_si512(words, _mm512_srli_epi32::<16>(words));
                let product = _mm512_mullo_epi32(folded, multiplier);
                let hash = _mm512_xor_si512(product, _mm512_srli_epi32::<16>(product));
                let bucket = _mm512_srl_epi32(hash, shift);
                let bucket = _mm512_i32gather_epi32::<2>(bucket, table.buckets.as_ptr().cast());
                let place = _mm512_xor_si512(hash, _mm512_and_si512(bucket, number));
                let place = _mm512_and_si512(place, low);
                let slot = _mm512_i32gather_epi32::<4>(place, table.slots.as_ptr().cast());
                let rest = _mm512_xor_si512(slot, _mm512_andnot_si512(low, hash));
                _mm512_storeu_si512(found.as_mut_ptr().cast(), rest);
            }
        }
        found
    }

    #[inline]
    #[target_feature(enable = "avx512f,popcnt")]
    pub(in super::super) fn count_from(found: &Found, first: u32) -> u32 {
        let first = _mm512_set1_epi32(first as i32);
        let bits = |all: u32, numbers: &[u8; 64]| {
            // SAFETY: the chunk holds 64 bytes; the load needs no alignment.
            let numbers = unsafe { _mm512_loadu_si512(numbers.as_ptr().cast()) };
            all << 16 | u32::from(_mm512_cmpge_epu32_mask(numbers, first))
        };
        found.0.as_chunks().0.iter().fold(0, bits).count_ones()
    }
}

pub(super) mod u64 {
    use super::*;

    /// # Safety
    /// The table must be valid.
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq")]
    pub(in super::super) unsafe fn find(entry: &Entry, table: &Lookup<'_, u64>) -> Found {
        debug_assert!(table.is_valid());
        let multiplier = _mm512_set1_epi64(table.multiplier as i64);
        let low = _mm512_set1_epi64(table.slots.len() as i64 - 1);
        let number = _mm512_set1_epi64(0xffff);
        let shift = _mm_cvtsi32_si128(table.shift() as i32);
        let mut found = Found([0; 128]);
        for (found, words) in found.0.as_chunks_mut::<64>().0.iter_mut().zip(entry.as_chunks::<64>().0) {
            // SAFETY: source and destination hold a vector; no alignment is needed. The shift keeps
            // the bucket in bounds, and the padding covers the six extra bytes read. The slot is
            // masked below the power of two.
            unsafe {
                let words = _mm512_loadu_si512(words.as_ptr().cast());
                let folded = _mm512_xor_si512(words, _mm512_srli_epi64::<32>(words));
                let product = _mm512_mullo_epi64(folded, multiplier);
                let hash = _mm512_xor_si512(product, _mm512_srli_epi64::<32>(product));
                let bucket = _mm512_srl_epi64(hash, shift);
                let bucket = _mm512_i64gather_epi64::<2>(bucket, table.buckets.as_ptr().cast());
                let place = _mm512_xor_si512(hash, _mm512_and_si512(bucket, number));
                let place = _mm512_and_si512(place, low);
                let slot = _mm512_i64gather_epi64::<8>(place, table.slots.as_ptr().cast());
                let rest = _mm512_xor_si512(slot, _mm512_andnot_si512(low, hash));
                _mm512_storeu_si512(found.as_mut_ptr().cast(), rest);
            }
        }
        found
    }

    #[inline]
    #[target_feature(enable = "avx512f,popcnt")]
    pub(in super::super) fn count_from(found: &Found, first: u64) -> u32 {
        let first = _mm512_set1_epi64(first as i64);
        let bits = |all: u32, numbers: &[u8; 64]| {
            // SAFETY: the chunk holds 64 bytes; the load needs no alignment.
            let numbers = unsafe { _mm512_loadu_si512(numbers.as_ptr().cast()) };
            all << 8 | u32::from(_mm512_cmpge_epu64_mask(numbers, first))
        };
        found.0.as_chunks().0.iter().fold(0, bits).count_ones()
    }
}
