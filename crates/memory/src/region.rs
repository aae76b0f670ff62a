//! Bytes that threads share: device memory and the carve-out.
//!
//! The storage is atomic 64-bit words, so that safe code may touch it from many threads. Every access is
//! relaxed: order comes from the locks of the metadata lines (`line.rs`), which whoever touches an entry holds.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytemuck::allocation::try_zeroed_slice_box;

use crate::Error;

const WORD: usize = size_of::<u64>();

/// A run of bytes, all zero at first.
pub(crate) struct Region {
    words: Box<[AtomicU64]>,
}

impl Region {
    /// A region of `bytes`, a multiple of 8. Its pages come from the operating system as they are touched.
    pub(crate) fn new(bytes: u64) -> Result<Self, Error> {
        let words = usize::try_from(bytes).ok().and_then(|len| try_zeroed_slice_box(len / WORD).ok());
        Ok(Self { words: words.ok_or(Error::Host { bytes })? })
    }

    /// Copies whole words from `start` on; `start` and the length are multiples of 8.
    #[inline]
    pub(crate) fn load(&self, start: u64, out: &mut [u8]) {
        let words = self.run(start, out.len());
        for (bytes, word) in out.as_chunks_mut().0.iter_mut().zip(words) {
            *bytes = word.load(Relaxed).to_le_bytes();
        }
    }

    /// Copies whole words to `start` on; `start` and the length are multiples of 8.
    #[inline]
    pub(crate) fn store(&self, start: u64, bytes: &[u8]) {
        let words = self.run(start, bytes.len());
        for (bytes, word) in bytes.as_chunks().0.iter().zip(words) {
            word.store(u64::from_le_bytes(*bytes), Relaxed);
        }
    }

    /// Copies any bytes out.
    pub(crate) fn load_bytes(&self, start: u64, out: &mut [u8]) {
        let (head, body) = out.split_at_mut(until_aligned(start, out.len()));
        let at = start + head.len() as u64;
        let (body, tail) = body.split_at_mut(body.len() / WORD * WORD);
        self.load(at, body);
        self.load_part(start, head);
        self.load_part(at + body.len() as u64, tail);
    }

    /// Copies any bytes in.
    pub(crate) fn store_bytes(&self, start: u64, bytes: &[u8]) {
        let (head, body) = bytes.split_at(until_aligned(start, bytes.len()));
        let at = start + head.len() as u64;
        let (body, tail) = body.split_at(body.len() / WORD * WORD);
        self.store_part(start, head);
        self.store(at, body);
        self.store_part(at + body.len() as u64, tail);
    }

    /// Overwrites `bytes` bytes with zeros; both numbers are multiples of 8.
    pub(crate) fn scrub(&self, start: u64, bytes: u64) {
        for word in self.run(start, bytes as usize) {
            word.store(0, Relaxed);
        }
    }

    #[inline]
    fn run(&self, start: u64, len: usize) -> &[AtomicU64] {
        debug_assert!(
            len == 0 || (start | len as u64).is_multiple_of(WORD as u64),
            "{len} bytes at {start:#x}"
        );
        &self.words[start as usize / WORD..][..len / WORD]
    }

    /// Copies bytes that lie within one word.
    fn load_part(&self, start: u64, out: &mut [u8]) {
        if let Some((word, within)) = self.word(start, out.len()) {
            out.copy_from_slice(&word.load(Relaxed).to_le_bytes()[within..][..out.len()]);
        }
    }

    /// Changes bytes that lie within one word.
    fn store_part(&self, start: u64, bytes: &[u8]) {
        if let Some((word, within)) = self.word(start, bytes.len()) {
            let mut whole = word.load(Relaxed).to_le_bytes();
            whole[within..][..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(whole), Relaxed);
        }
    }

    /// The word of a byte and the byte's place in it; `None` if there is nothing to touch.
    fn word(&self, start: u64, len: usize) -> Option<(&AtomicU64, usize)> {
        (len > 0).then(|| (&self.words[start as usize / WORD], start as usize % WORD))
    }
}

/// Bytes from `start` to the next word, at most `len`.
fn until_aligned(start: u64, len: usize) -> usize {
    (start.next_multiple_of(WORD as u64) - start).min(len as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_go_in_and_out_and_their_neighbours_stay() {
        for start in 0..17 {
            for len in 0..40 {
                let region = Region::new(64).unwrap();
                region.store(0, &[0xee; 64]);
                let bytes: Vec<u8> = (1..=len as u8).collect();
                region.store_bytes(start as u64, &bytes);
                let mut expected = [0xee; 64];
                expected[start..start + len].copy_from_slice(&bytes);
                let mut all = [0; 64];
                region.load(0, &mut all);
                assert_eq!(all, expected);
                let mut out = vec![0; len];
                region.load_bytes(start as u64, &mut out);
                assert_eq!(out, bytes);
            }
        }
    }

    #[test]
    fn a_region_that_no_machine_has_is_an_error() {
        for bytes in [1 << 62, u64::MAX - 7] {
            // Unseen, the optimiser drops an allocation that nobody uses, and with it the failure.
            let region = std::hint::black_box(Region::new(bytes));
            assert_eq!(region.err(), Some(Error::Host { bytes }));
        }
    }
}
