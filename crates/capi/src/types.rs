//! The types of `buddy.h`.

use std::ffi::{c_char, c_void};

use buddy_core::{Histogram, SizeClass, Target};

use crate::error::Failure;

/// Error code of a call; 0 is success.
pub type Code = i32;
/// An allocation. Handles are never reused, so that stale ones are detected.
pub type Handle = u64;
/// A CUDA stream; null is the default stream.
pub type Stream = *mut c_void;
/// A GPU address.
pub type DevicePointer = u64;

/// Compressed sizes of memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Sizes {
    /// Entries of each class: zero, b8, s1, s2, s3, raw.
    pub classes: [u64; 6],
    /// Their bytes at the best of the paper's eight sizes each.
    pub optimistic_bytes: u64,
}

/// Memory to be sized.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Span {
    /// The memory, aligned to 16 bytes.
    pub data: DevicePointer,
    /// Length in bytes; the last entry may be partial.
    pub bytes: usize,
    /// The codec's name, such as `bf16:117`.
    pub codec: *const c_char,
    /// Receives the class of each entry, one byte each; 0 for none.
    pub classes: DevicePointer,
}

/// Statistics of an allocation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Stats {
    /// The requested length.
    pub bytes: u64,
    /// Entries of 128 bytes, a partial last one included.
    pub entries: u64,
    /// Device memory in use.
    pub device_bytes: u64,
    /// Pinned host memory in use.
    pub buddy_bytes: u64,
    /// Entries of each class.
    pub classes: [u64; 6],
    /// Entries with bytes in host memory.
    pub overflowing: u64,
    /// The lowest entry that failed to decode since the last call, or all ones.
    pub faulty_entry: u64,
}

impl From<Histogram> for Sizes {
    fn from(histogram: Histogram) -> Self {
        Self { classes: histogram.classes, optimistic_bytes: histogram.optimistic_bytes }
    }
}

impl Stats {
    pub(crate) fn of(allocation: &buddy_cuda::Allocation, stats: buddy_cuda::Stats) -> Self {
        Self {
            bytes: allocation.bytes(),
            entries: allocation.buffer().entries(),
            device_bytes: allocation.device_bytes(),
            buddy_bytes: allocation.buddy_bytes(),
            classes: SizeClass::ALL.map(|class| stats.class(class)),
            overflowing: stats.overflowing,
            faulty_entry: stats.fault.map_or(u64::MAX, |fault| fault.entry),
        }
    }
}

/// Converts a target's number in `buddy.h`.
pub(crate) fn target(number: i32) -> Result<Target, Failure> {
    let targets = [Target::X1, Target::X4Over3, Target::X2, Target::X4, Target::X16];
    let found = usize::try_from(number).ok().and_then(|number| targets.get(number));
    found.copied().ok_or_else(|| Failure::Value(format!("{number} is no target; 0 to 4 are")))
}
