//! The types of `buddy.h`.

use std::ffi::{c_char, c_void};

use buddy_core::{Histogram, SizeClass, Target};

use crate::error::Failure;

/// Error code of a call; 0 is success.
pub type Code = i32;
/// An allocation. Numbers are never used again, so that a stale one is known as such.
pub type Handle = u64;
/// A stream of the driver; null is the default stream.
pub type Stream = *mut c_void;
/// An address of the GPU.
pub type DevicePointer = u64;

/// The sizes of memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Sizes {
    /// Entries of each class: zero, b8, s1, s2, s3, raw.
    pub classes: [u64; 6],
    /// Their bytes if each had the best of the paper's eight sizes.
    pub optimistic_bytes: u64,
}

/// Memory whose sizes are asked for.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Span {
    /// Where it begins, aligned to 16 bytes.
    pub data: DevicePointer,
    /// Its length, which may end inside an entry.
    pub bytes: usize,
    /// The codec's name, such as `bf16:117`.
    pub codec: *const c_char,
    /// Where the class of each entry goes, one byte each; 0 for nowhere.
    pub classes: DevicePointer,
}

/// Statistics of an allocation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Stats {
    /// Its length, as it was asked for.
    pub bytes: u64,
    /// Entries of 128 bytes, the last of them perhaps in part.
    pub entries: u64,
    /// Device memory that it takes.
    pub device_bytes: u64,
    /// Pinned host memory that it takes.
    pub buddy_bytes: u64,
    /// Entries of each class.
    pub classes: [u64; 6],
    /// Entries with bytes in host memory.
    pub overflowing: u64,
    /// The lowest entry that did not decode since the last call, or all ones.
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

/// The target of a number of `buddy.h`.
pub(crate) fn target(number: i32) -> Result<Target, Failure> {
    let targets = [Target::X1, Target::X4Over3, Target::X2, Target::X4, Target::X16];
    let found = usize::try_from(number).ok().and_then(|number| targets.get(number));
    found.copied().ok_or_else(|| Failure::Value(format!("{number} is no target; 0 to 4 are")))
}
