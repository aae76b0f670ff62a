//! The locks and atomics of the memory: the standard library's, or loom's where `tools/loom.sh` tries every order of threads.
//!
//! Under loom the bytes themselves are plain atomics, since thousands of watched words have too many orders; instead each part
//! of a region has a [`Guard`] that notes who touches it, and fails where nothing orders two threads of which one writes.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic::AtomicU64,
};
#[cfg(not(loom))]
pub(crate) use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic::AtomicU64};

/// Notes accesses to the bytes of a region; nothing at all outside of loom.
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

    /// Bytes of a part: no two lines share one, whatever their targets.
    const PART_BYTES: u64 = 512;

    /// One part; nothing lies in it.
    pub(super) struct Part(UnsafeCell<()>);

    // SAFETY: it holds nothing, and its pointer is never followed.
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
