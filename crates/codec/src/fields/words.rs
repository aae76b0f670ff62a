//! An entry as `N` words in `u64`s: 32 words of 32 bits or 16 of 64.

use buddy_core::{Entry, ZERO_ENTRY};

/// Returns the bits of a word if an entry has `n` words.
pub(super) const fn bits(n: usize) -> u32 {
    1024 / n as u32
}

/// Returns the mask of a word.
pub(super) const fn mask(n: usize) -> u64 {
    u64::MAX >> (64 - bits(n))
}

/// Splits an entry into words.
#[inline(always)]
pub(super) fn split<const N: usize>(entry: &Entry) -> [u64; N] {
    let mut words = [0; N];
    if N == 32 {
        words
            .iter_mut()
            .zip(entry.as_chunks().0)
            .for_each(|(word, &bytes)| *word = u32::from_le_bytes(bytes).into());
    } else {
        words
            .iter_mut()
            .zip(entry.as_chunks().0)
            .for_each(|(word, &bytes)| *word = u64::from_le_bytes(bytes));
    }
    words
}

/// Joins words into an entry.
#[inline(always)]
pub(super) fn join<const N: usize>(words: &[u64; N]) -> Entry {
    let mut entry = ZERO_ENTRY;
    if N == 32 {
        entry
            .as_chunks_mut()
            .0
            .iter_mut()
            .zip(words)
            .for_each(|(bytes, &word)| *bytes = (word as u32).to_le_bytes());
    } else {
        entry.as_chunks_mut().0.iter_mut().zip(words).for_each(|(bytes, &word)| *bytes = word.to_le_bytes());
    }
    entry
}
