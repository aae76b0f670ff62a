//! Memory that is measured: an array in a file, or the bytes of a program that is running.

use std::ops::Range;

use buddy_snapshot::Array;

/// Bytes to read through, stretch by stretch.
pub trait Memory: Sync {
    /// The whole of it, as one slice; a mapped file is read when it is touched.
    fn bytes(&self) -> &[u8];

    /// Says that these will not be needed soon.
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

impl Memory for Array {
    fn bytes(&self) -> &[u8] {
        self.bytes()
    }

    fn release(&self, range: Range<usize>) {
        self.release(range);
    }
}

impl Memory for &[u8] {
    fn bytes(&self) -> &[u8] {
        self
    }
}
