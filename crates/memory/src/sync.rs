//! Locks and atomics of the memory: those of the standard library, or of loom under
//! `tools/loom.sh`.
//!
//! Under loom the bytes stay plain atomics, since thousands of tracked words give too many
//! interleavings. Instead each part of a region has a [`Guard`] that records accesses and fails on
//! unordered conflicting ones.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic::AtomicU64,
};
#[cfg(not(loom))]
pub(crate) use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic::AtomicU64};

/// Race detector for the bytes of a region; does nothing without loom.
pub(crate) struct Guard {
    #[cfg(loom)]
    parts: Box<[part::Part]>,
}

#[cfg(not(loom))]
impl Guard {
    pub(crate) fn new(_bytes: u64) -> Self {
        Self {}
    }

    #[inline(always)]
    pub(crate) fn reads(&self, _start: u64, _bytes: u64) {}

    #[inline(always)]
    pub(crate) fn writes(&self, _start: u64, _bytes: u64) {}
}

#[cfg(loom)]
mod part {
    use loom::cell::UnsafeCell;

    use super::Guard;

    /// Bytes per part; no two lines share a part at any target.
    const PART_BYTES: u64 = 512;

    /// One tracked part, without contents.
    pub(super) struct Part(UnsafeCell<()>);

    // SAFETY: the cell is zero-sized and its pointer is never dereferenced.
    #[allow(unsafe_code)]
    unsafe impl Sync for Part {}

    impl Guard {
        pub(crate) fn new(bytes: u64) -> Self {
            Self { parts: (0..bytes.div_ceil(PART_BYTES)).map(|_| Part(UnsafeCell::new(()))).collect() }
        }

        pub(crate) fn reads(&self, start: u64, bytes: u64) {
            self.of(start, bytes).iter().for_each(|part| part.0.with(|_| ()));
        }

        pub(crate) fn writes(&self, start: u64, bytes: u64) {
            self.of(start, bytes).iter().for_each(|part| part.0.with_mut(|_| ()));
        }

        fn of(&self, start: u64, bytes: u64) -> &[Part] {
            let end = (start + bytes).div_ceil(PART_BYTES);
            &self.parts[(start / PART_BYTES).min(end) as usize..end as usize]
        }
    }
}
