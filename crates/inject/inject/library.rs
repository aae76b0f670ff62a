//! Shared libraries opened while the program runs; the injected library links none of them.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    mem::transmute_copy,
};

/// An opaque handle of a library.
pub(crate) type Handle = *mut c_void;

unsafe extern "C" {
    fn dlopen(file: *const c_char, flags: c_int) -> Handle;
    fn dlsym(library: Handle, name: *const c_char) -> Handle;
}

const RTLD_NOW: c_int = 2;

/// An open library, never closed.
#[derive(Clone, Copy)]
pub(crate) struct Library(Handle);

impl Library {
    /// Opens the first available of these files.
    pub(crate) fn open<'a>(files: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        files.into_iter().find_map(|file| {
            let file = CString::new(file).ok()?;
            // SAFETY: the name ends in zero; the program loads these libraries anyway.
            let handle = unsafe { dlopen(file.as_ptr(), RTLD_NOW) };
            (!handle.is_null()).then_some(Self(handle))
        })
    }

    /// Finds a function of the library.
    ///
    /// # Safety
    /// `F` must be the function's type.
    pub(crate) unsafe fn find<F>(self, name: &CStr) -> Result<F, String> {
        // SAFETY: an open library and a name that ends in zero.
        let found = unsafe { dlsym(self.0, name.as_ptr()) };
        if found.is_null() {
            return Err(format!("there is no {} in this version", name.to_string_lossy()));
        }
        // SAFETY: a function pointer of the caller's type.
        Ok(unsafe { transmute_copy(&found) })
    }
}
