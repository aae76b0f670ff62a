//! Pieces of a pool that the program manages itself and CUDA knows as one allocation.
//!
//! The program registers a function (`buddy_watch.h`). It is called before a snapshot, with no lock
//! held, since it may wait for the program's locks, and calls back for every piece.

use std::{
    ffi::{CStr, c_char},
    mem::take,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// The program's function that reports all pieces.
pub(crate) type Tell = extern "C" fn();

/// Address, bytes, and the name; `None` for a free piece.
pub(crate) type Named = (u64, u64, Option<String>);

/// Pool pieces reported by the program.
pub(crate) struct Pieces {
    tell: Mutex<Option<Tell>>,
    asking: AtomicBool,
    named: Mutex<Vec<Named>>,
}

impl Pieces {
    pub(crate) const fn new() -> Self {
        Self { tell: Mutex::new(None), asking: AtomicBool::new(false), named: Mutex::new(Vec::new()) }
    }

    /// Registers the function, or unregisters it.
    pub(crate) fn from(&self, tell: Option<Tell>) {
        *self.tell.lock().unwrap_or_else(PoisonError::into_inner) = tell;
    }

    /// Records a piece while the program reports them.
    ///
    /// # Safety
    /// The name is null or ends in zero.
    pub(crate) unsafe fn name(&self, address: u64, bytes: u64, name: *const c_char) {
        if self.asking.load(Ordering::Acquire) {
            // SAFETY: the caller's promise.
            let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) });
            let name = name.map(|name| name.to_string_lossy().replace(char::is_control, " "));
            self.named.lock().unwrap_or_else(PoisonError::into_inner).push((address, bytes, name));
        }
    }

    /// Returns all current pieces; empty without a registered function, `None` while another thread
    /// asks.
    pub(crate) fn ask(&self) -> Option<Vec<Named>> {
        let tell = *self.tell.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(tell) = tell else { return Some(Vec::new()) };
        if self.asking.swap(true, Ordering::AcqRel) {
            return None;
        }
        tell();
        self.asking.store(false, Ordering::Release);
        Some(take(&mut *self.named.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}
