//! Arrays in files as memory to measure.

use std::ops::Range;

use buddy_snapshot::Array;

use crate::Memory;

impl Memory for Array {
    fn bytes(&self) -> &[u8] {
        self.bytes()
    }

    fn release(&self, range: Range<usize>) {
        self.release(range);
    }
}
