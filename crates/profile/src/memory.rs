//! Memory to measure: an array in a file, or memory of a running program.

use std::ops::Range;

/// Contiguous bytes, read in segments.
pub trait Memory: Sync {
    /// Returns all bytes. A mapped file is read on access.
    fn bytes(&self) -> &[u8];

    /// Hints that a byte range is not needed soon.
    fn release(&self, _range: Range<usize>) {}
}

impl<M: Memory> Memory for &M {
    fn bytes(&self) -> &[u8] {
        (**self).bytes()
    }

    fn release(&self, range: Range<usize>) {
        (**self).release(range);
    }
}

impl Memory for &[u8] {
    fn bytes(&self) -> &[u8] {
        self
    }
}
