//! Call sites of allocations: file and line where symbols are available, else module and offset.

use std::{
    backtrace::Backtrace,
    collections::HashMap,
    ffi::{CStr, c_char, c_int, c_void},
};

use crate::frames::{Frame, file_name, parse};

/// Frames that distinguish call sites.
const DEPTH: usize = 32;
/// Modules whose frames are never the program's own.
const VENDOR: [&str; 5] = ["libcuda.so", "libcudart.so", "libcupti", "libnvidia-", "libbuddy_watch"];

#[repr(C)]
struct DlInfo {
    file: *const c_char,
    base: *mut c_void,
    symbol: *const c_char,
    address: *mut c_void,
}

unsafe extern "C" {
    fn _Unwind_Backtrace(
        step: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
    fn dladdr(address: *const c_void, info: *mut DlInfo) -> c_int;
}

/// Call sites by their frames.
#[derive(Default)]
pub(crate) struct Sites {
    known: HashMap<Vec<usize>, u32>,
    names: HashMap<String, u32>,
}

impl Sites {
    /// Returns the index of this thread's call site, and its name if it is new.
    pub(crate) fn here(&mut self) -> (u32, Option<String>) {
        let frames = frames();
        if let Some(&site) = self.known.get(&frames) {
            return (site, None);
        }
        let (site, new) = self.named(name());
        self.known.insert(frames, site);
        (site, new)
    }

    /// Returns the index of the site of this name, and the name if it is new. Different paths to
    /// the same line are one site.
    pub(crate) fn named(&mut self, name: String) -> (u32, Option<String>) {
        if let Some(&site) = self.names.get(&name) {
            return (site, None);
        }
        let site = self.names.len() as u32;
        self.names.insert(name.clone(), site);
        (site, Some(name))
    }
}

/// Returns this thread's return addresses, innermost first.
fn frames() -> Vec<usize> {
    extern "C" fn step(context: *mut c_void, list: *mut c_void) -> c_int {
        // SAFETY: the list that `frames` passed.
        let list = unsafe { &mut *list.cast::<Vec<usize>>() };
        // SAFETY: the unwinder's own context.
        list.push(unsafe { _Unwind_GetIP(context) });
        if list.len() < DEPTH { 0 } else { 5 }
    }
    let mut list = Vec::with_capacity(DEPTH);
    // SAFETY: the list outlives the call.
    unsafe { _Unwind_Backtrace(step, std::ptr::from_mut(&mut list).cast()) };
    list
}

/// Returns the file of the module that holds an address, and its load address.
fn module(address: usize) -> Option<(String, usize)> {
    let null: *mut c_void = std::ptr::null_mut();
    let mut info = DlInfo { file: null.cast(), base: null, symbol: null.cast(), address: null };
    // SAFETY: dladdr takes any address and writes the struct.
    if unsafe { dladdr(address as *const c_void, &mut info) } == 0 || info.file.is_null() {
        return None;
    }
    // SAFETY: the text ends in zero.
    let file = unsafe { CStr::from_ptr(info.file) }.to_string_lossy().into_owned();
    Some((file, info.base as usize))
}

/// Returns the name of this thread's call site.
fn name() -> String {
    // The alternate form includes each frame's address.
    let stack = parse(&format!("{:#}", Backtrace::force_capture()));
    let own = |frame: &&Frame| {
        let module = module(frame.address).map(|(file, _)| file_name(&file));
        module.is_some_and(|module| !VENDOR.iter().any(|one| module.starts_with(one)))
    };
    let own: Vec<&Frame> = stack.iter().filter(own).collect();
    let runtime = own.iter().take(DEPTH / 2).rposition(|frame| frame.is_runtime());
    let after = runtime.map_or(0, |last| last + 1);
    let Some(frame) = own.get(after).or(own.first()) else { return "unknown".to_owned() };
    frame.place.clone().unwrap_or_else(|| offset(frame.address))
}

/// Returns module and offset of an address.
fn offset(address: usize) -> String {
    match module(address) {
        Some((file, base)) => format!("{}+{:#x}", file_name(&file), address.saturating_sub(base)),
        None => format!("{address:#x}"),
    }
}
