//! The CUPTI functions in use, and the data of its callbacks. Layouts and numbers are those of its
//! public headers. Driver calls are found by name, since their ids depend on the version.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr::{null, null_mut},
};

use crate::library::{Handle, Library};

pub(crate) const DRIVER: u32 = 1;
pub(crate) const RESOURCE: u32 = 3;
/// A context is about to be destroyed, in the resource domain.
pub(crate) const CONTEXT_ENDS: u32 = 2;
/// More than the driver calls of any CUPTI version.
pub(crate) const MOST_CALLS: u32 = 2048;

/// Callback data of the driver domain.
#[repr(C)]
pub(crate) struct CallData {
    /// 0 at a call's entry, 1 at its exit.
    pub(crate) site: c_int,
    pub(crate) function: *const c_char,
    pub(crate) parameters: *const c_void,
    pub(crate) result: *const c_int,
    /// The kernel's name, for a launch.
    pub(crate) symbol: *const c_char,
    pub(crate) context: Handle,
}

/// Callback data of the resource domain.
#[repr(C)]
pub(crate) struct ResourceData {
    pub(crate) context: Handle,
}

pub(crate) type Callback = extern "C" fn(Handle, u32, u32, *const c_void);

/// The functions, loaded at run time.
pub(crate) struct Cupti {
    subscribe: unsafe extern "C" fn(*mut Handle, Callback, Handle) -> c_int,
    enable: unsafe extern "C" fn(u32, Handle, u32, u32) -> c_int,
    callback_name: unsafe extern "C" fn(u32, u32, *mut *const c_char) -> c_int,
    result_text: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int,
    subscriber: Handle,
}

impl Cupti {
    /// Opens the library and subscribes.
    pub(crate) fn subscribe(files: &[String], callback: Callback) -> Result<Self, String> {
        let library = Library::open(files.iter().map(String::as_str)).ok_or(
            "libcupti was not found; it is part of the CUDA toolkit, or `pip install nvidia-cuda-cupti`",
        )?;
        // SAFETY: the types are those of CUPTI's headers.
        let mut cupti = unsafe {
            Self {
                subscribe: library.find(c"cuptiSubscribe")?,
                enable: library.find(c"cuptiEnableCallback")?,
                callback_name: library.find(c"cuptiGetCallbackName")?,
                result_text: library.find(c"cuptiGetResultString")?,
                subscriber: null_mut(),
            }
        };
        // SAFETY: the callback lives as long as the process.
        let result = unsafe { (cupti.subscribe)(&mut cupti.subscriber, callback, null_mut()) };
        cupti.check(result)?;
        Ok(cupti)
    }

    fn check(&self, result: c_int) -> Result<(), String> {
        if result == 0 {
            return Ok(());
        }
        let mut text = null();
        // SAFETY: CUPTI writes the address of a static text.
        let known = unsafe { (self.result_text)(result, &mut text) } == 0 && !text.is_null();
        // SAFETY: the text ends in zero.
        let text = if known { unsafe { CStr::from_ptr(text) }.to_string_lossy() } else { "".into() };
        let hint = if text.contains("MULTIPLE_SUBSCRIBERS") { " (another profiler is on)" } else { "" };
        Err(format!("CUPTI refuses: {text} ({result}){hint}"))
    }

    /// Enables the callback for one driver call.
    pub(crate) fn enable(&self, domain: u32, call: u32) -> Result<(), String> {
        // SAFETY: the subscriber is this one's.
        self.check(unsafe { (self.enable)(1, self.subscriber, domain, call) })
    }

    /// Returns the name of a driver call; `None` past the last.
    pub(crate) fn name(&self, call: u32) -> Option<String> {
        let mut name = null();
        // SAFETY: CUPTI writes the address of a static text.
        let found = unsafe { (self.callback_name)(DRIVER, call, &mut name) } == 0 && !name.is_null();
        // SAFETY: the text ends in zero.
        found.then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }
}
