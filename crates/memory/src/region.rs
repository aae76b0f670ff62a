//! Storage shared by threads: device memory and the carve-out.
//!
//! Consists of atomic 64-bit words, so that safe code may access it from several threads. Accesses
//! are relaxed: the locks of metadata lines (`line.rs`) provide the ordering.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use buddy_core::SECTOR_BYTES;
use bytemuck::allocation::try_zeroed_slice_box;

use crate::{Error, sync::Guard};

/// Bytes of a word.
pub(crate) const WORD: usize = size_of::<u64>();

/// Byte storage shared by threads, initially zero; device memory and carve-outs consist of it.
pub struct Region {
    words: Box<[AtomicU64]>,
    guard: Guard,
}

impl Region {
    /// Creates a region of `bytes`, a multiple of 8. The operating system commits pages on first
    /// touch.
    ///
    /// # Errors
    /// [`Error::Host`] if the host has no room for it.
    pub fn new(bytes: u64) -> Result<Self, Error> {
        let words = usize::try_from(bytes).ok().and_then(|len| try_zeroed_slice_box(len / WORD).ok());
        Ok(Self { words: words.ok_or(Error::Host { bytes })?, guard: Guard::new(bytes) })
    }

    /// Returns the words of `bytes` bytes from `start`; both are multiples of 8.
    pub(crate) fn words(&self, start: u64, bytes: u64) -> &[AtomicU64] {
        debug_assert!((start | bytes).is_multiple_of(WORD as u64), "{bytes} bytes at {start:#x}");
        &self.words[start as usize / WORD..][..bytes as usize / WORD]
    }

    /// Returns the access checker.
    #[inline(always)]
    pub(crate) fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// If the range leaves the region.
    pub fn load(&self, start: u64, out: &mut [u8]) {
        self.guard.reads(start, out.len() as u64);
        let (head, body, tail) = cut(start, out.len());
        self.load_part(start, &mut out[..head]);
        load_words(self.body(start, head, body), &mut out[head..][..body]);
        self.load_part(start + (head + body) as u64, &mut out[head + body..][..tail]);
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// If the range leaves the region.
    pub fn store(&self, start: u64, bytes: &[u8]) {
        self.guard.writes(start, bytes.len() as u64);
        let (head, body, tail) = cut(start, bytes.len());
        self.store_part(start, &bytes[..head]);
        store_words(self.body(start, head, body), &bytes[head..][..body]);
        self.store_part(start + (head + body) as u64, &bytes[head + body..][..tail]);
    }

    /// Zeroes bytes; both arguments are multiples of 8.
    pub(crate) fn scrub(&self, start: u64, bytes: u64) {
        self.guard.writes(start, bytes);
        for word in self.words(start, bytes) {
            word.store(0, Relaxed);
        }
    }

    /// Returns the whole words after the first `head` bytes.
    fn body(&self, start: u64, head: usize, body: usize) -> &[AtomicU64] {
        if body == 0 { &[] } else { self.words(start + head as u64, body as u64) }
    }

    /// Copies bytes out of one word.
    fn load_part(&self, start: u64, out: &mut [u8]) {
        if !out.is_empty() {
            let whole = self.word(start).load(Relaxed).to_le_bytes();
            out.copy_from_slice(&whole[start as usize % WORD..][..out.len()]);
        }
    }

    /// Copies bytes into one word.
    fn store_part(&self, start: u64, bytes: &[u8]) {
        if !bytes.is_empty() {
            let mut whole = self.word(start).load(Relaxed).to_le_bytes();
            whole[start as usize % WORD..][..bytes.len()].copy_from_slice(bytes);
            self.word(start).store(u64::from_le_bytes(whole), Relaxed);
        }
    }

    fn word(&self, start: u64) -> &AtomicU64 {
        &self.words[start as usize / WORD]
    }
}

/// Splits `len` bytes at `start` into a head before the first word, whole words, and a tail.
fn cut(start: u64, len: usize) -> (usize, usize, usize) {
    let head = ((start.next_multiple_of(WORD as u64) - start) as usize).min(len);
    let body = (len - head) / WORD * WORD;
    (head, body, len - head - body)
}

/// Copies words to bytes of the same length, by sector: a loop of constant length is unrolled.
#[inline(always)]
pub(crate) fn load_words(words: &[AtomicU64], out: &mut [u8]) {
    let (sectors, words) = words.as_chunks::<{ SECTOR_BYTES / WORD }>();
    let (sectors_out, words_out) = out.as_chunks_mut::<SECTOR_BYTES>();
    let load = |words: &[AtomicU64], out: &mut [u8]| {
        for (bytes, word) in out.as_chunks_mut().0.iter_mut().zip(words) {
            *bytes = word.load(Relaxed).to_le_bytes();
        }
    };
    sectors_out.iter_mut().zip(sectors).for_each(|(out, sector)| load(sector, out));
    load(words, words_out);
}

/// Copies bytes to words of the same length.
#[inline(always)]
pub(crate) fn store_words(words: &[AtomicU64], bytes: &[u8]) {
    let (sectors, words) = words.as_chunks::<{ SECTOR_BYTES / WORD }>();
    let (sectors_in, words_in) = bytes.as_chunks::<SECTOR_BYTES>();
    let store = |words: &[AtomicU64], bytes: &[u8]| {
        for (bytes, word) in bytes.as_chunks().0.iter().zip(words) {
            word.store(u64::from_le_bytes(*bytes), Relaxed);
        }
    };
    sectors_in.iter().zip(sectors).for_each(|(bytes, sector)| store(sector, bytes));
    store(words, words_in);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_round_trip_and_neighbours_are_unchanged() {
        for start in 0..17 {
            for len in 0..40 {
                let region = Region::new(64).unwrap();
                region.store(0, &[0xee; 64]);
                let bytes: Vec<u8> = (1..=len as u8).collect();
                region.store(start as u64, &bytes);
                let mut expected = [0xee; 64];
                expected[start..start + len].copy_from_slice(&bytes);
                let mut all = [0; 64];
                region.load(0, &mut all);
                assert_eq!(all, expected);
                let mut out = vec![0; len];
                region.load(start as u64, &mut out);
                assert_eq!(out, bytes);
            }
        }
    }

    #[test]
    fn an_impossible_size_is_an_error() {
        for bytes in [1 << 62, u64::MAX - 7] {
            // `black_box` keeps the optimiser from removing the unused allocation and its failure.
            let region = std::hint::black_box(Region::new(bytes));
            assert_eq!(region.err(), Some(Error::Host { bytes }));
        }
    }
}
