//! The values of a sparse matrix: fp32 and fp64.

use std::{
    fmt::Debug,
    ops::{AddAssign, Mul},
};

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// A value of a sparse matrix, by its bits. Implemented for `f32` and `f64` alone.
pub trait Real:
    sealed::Sealed + Copy + Debug + Default + PartialEq + Mul<Output = Self> + AddAssign + Send + Sync
{
    /// Bytes of a value: 4 or 8.
    const BYTES: u32;

    /// Returns the bits, in the low part of the word.
    fn bits(self) -> u64;

    /// Inverts [`bits`](Self::bits).
    fn from_bits(bits: u64) -> Self;
}

impl Real for f32 {
    const BYTES: u32 = 4;

    fn bits(self) -> u64 {
        u64::from(self.to_bits())
    }

    fn from_bits(bits: u64) -> Self {
        Self::from_bits(bits as u32)
    }
}

impl Real for f64 {
    const BYTES: u32 = 8;

    fn bits(self) -> u64 {
        self.to_bits()
    }

    fn from_bits(bits: u64) -> Self {
        Self::from_bits(bits)
    }
}
