//! Pieces of memory that the program names itself, because it takes them from a pool that CUDA
//! knows as one allocation.
//!
//! The program leaves a function here (`buddy_watch.h`); it is called before a look, with no lock
//! held, since it may wait for locks of the program, and calls back for every piece.

use std::{
    ffi::{CStr, c_char},
    mem::take,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// A function of the program that names all pieces.
pub(crate) type Tell = extern "C" fn();

/// Address, bytes, and the name unless it is free.
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

    /// Whom to ask from now on.
    pub(crate) fn from(&self, tell: Option<Tell>) {
        *self.tell.lock().unwrap_or_else(PoisonError::into_inner) = tell;
    }

    /// Takes a piece while the program is being asked.
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

    /// All pieces as the program names them now; nothing if nobody is to be asked. None while
    /// another thread asks.
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
