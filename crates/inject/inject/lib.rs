//! The library that a watched process loads when CUDA starts (`CUDA_INJECTION64_PATH`).
//!
//! CUPTI calls it at the driver's calls. It keeps books of the program's device memory, and now and
//! then has the size kernels look at all of it; what they count goes to a log that the command
//! reads when the program has ended, however it ended. It uses the standard library alone, so that
//! the build script compiles it with one call of the compiler. What goes wrong is said once, and
//! the program runs on.

mod accesses;
mod book;
mod calls;
mod cupti;
mod driver;
mod frames;
mod learn;
mod library;
mod lines;
mod look;
mod pieces;
mod settings;
mod site;
mod spacing;
mod spans;
mod watcher;

use std::{
    cell::Cell,
    ffi::{CStr, c_char, c_int, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use calls::{Call, Parameters};
use cupti::{CallData, Cupti, ResourceData};
use pieces::{Pieces, Tell};
use watcher::Watcher;

/// Pool pieces reported by the program.
static PIECES: Pieces = Pieces::new();
static WATCHER: OnceLock<Watcher> = OnceLock::new();
/// Driver calls by CUPTI callback id.
static CALLS: OnceLock<Vec<Option<Call>>> = OnceLock::new();
/// False once watching has stopped.
static ON: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// True while this thread runs library code: its own driver calls are ignored.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

unsafe extern "C" {
    fn atexit(act: extern "C" fn()) -> c_int;
}

/// CUDA calls this when a process begins to use it.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> c_int {
    if WATCHER.get().is_none() {
        std::panic::set_hook(Box::new(|_| ()));
        let started = catch_unwind(start).unwrap_or_else(|_| Err("it failed to start".to_owned()));
        if let Err(why) = started {
            stop(&why);
        }
    }
    1
}

/// Says once why nothing is watched any more.
fn stop(why: &str) {
    ON.store(false, Ordering::Relaxed);
    eprintln!("buddy watch: {why}; the program runs on unwatched");
    if let Some(watcher) = WATCHER.get() {
        watcher.note(&format!("stopped {why}"));
    }
}

fn start() -> Result<(), String> {
    let watcher = Watcher::open()?;
    let watcher = WATCHER.get_or_init(|| watcher);
    let cupti = Cupti::subscribe(&watcher.settings().cupti, on_call)?;
    let calls: Vec<Option<Call>> =
        (0..cupti::MOST_CALLS).map(|call| cupti.name(call).and_then(|name| Call::named(&name))).collect();
    let followed = (0..).zip(&calls).filter(|(_, call)| call.is_some()).map(|(number, _)| number);
    followed.into_iter().try_for_each(|call| cupti.enable(cupti::DRIVER, call))?;
    cupti.enable(cupti::RESOURCE, cupti::CONTEXT_ENDS)?;
    CALLS.get_or_init(|| calls);
    ON.store(true, Ordering::Relaxed);
    // SAFETY: the function lives as long as the process; the library is never unloaded.
    unsafe { atexit(at_exit) };
    Ok(())
}

extern "C" fn at_exit() {
    ON.store(false, Ordering::Relaxed);
    if let Some(watcher) = WATCHER.get() {
        let _ = catch_unwind(AssertUnwindSafe(|| watcher.end()));
    }
}

/// Does something with the watcher unless this thread is in it already.
fn inside(act: impl FnOnce(&Watcher) -> Result<(), String>) {
    let Some(watcher) = WATCHER.get() else { return };
    if !ON.load(Ordering::Relaxed) || INSIDE.replace(true) {
        return;
    }
    let done = catch_unwind(AssertUnwindSafe(|| act(watcher)));
    INSIDE.set(false);
    match done {
        Ok(Ok(())) => {}
        Ok(Err(why)) => stop(&why),
        Err(_) => stop("a fault of its own"),
    }
}

/// The CUPTI callback.
extern "C" fn on_call(_: *mut c_void, domain: u32, id: u32, data: *const c_void) {
    if domain == cupti::RESOURCE {
        // SAFETY: the data of the resource domain, valid during the call.
        let context = unsafe { (*data.cast::<ResourceData>()).context } as u64;
        return inside(|watcher| watcher.context_ends(context));
    }
    let Some(call) = CALLS.get().and_then(|calls| *calls.get(id as usize)?) else { return };
    // SAFETY: the data of the driver's domain, valid during the call.
    let data = unsafe { &*data.cast::<CallData>() };
    // SAFETY: the result is there at the exit.
    let succeeded = || unsafe { data.result.is_null() || *data.result == 0 };
    let entry = data.site == 0;
    if entry != call.at_entry() || (!entry && call != Call::EndCapture && !succeeded()) {
        return;
    }
    // SAFETY: the parameters of this call, valid during it.
    let parameters = unsafe { Parameters::new(data.parameters) };
    let context = data.context as u64;
    // SAFETY: likewise; a name ends in zero.
    inside(|watcher| unsafe {
        match call {
            Call::Launch { .. } | Call::LaunchGraph => {
                let named = !data.symbol.is_null();
                let kernel = if named { CStr::from_ptr(data.symbol) } else { c"graph" };
                watcher.launched(call, parameters, kernel)
            }
            _ => watcher.called(call, parameters, context),
        }
    });
}

/// A program calls this through `buddy_watch.h` when it wants to be looked at.
///
/// # Safety
/// The label is null or ends in zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddy_watch_look_now(label: *const c_char) {
    // SAFETY: the caller's promise.
    let label = if label.is_null() { c"" } else { unsafe { CStr::from_ptr(label) } };
    inside(|watcher| watcher.asked(label));
}

/// A program that keeps a pool leaves a function here that names the pool's pieces, by
/// `buddy_watch_piece_is`, whenever it is called; null takes it back.
#[unsafe(no_mangle)]
pub extern "C" fn buddy_watch_pieces_from(tell: Option<Tell>) {
    PIECES.from(tell);
}

/// The function of [`buddy_watch_pieces_from`] calls this for every piece; without a name it is
/// free.
///
/// # Safety
/// The name is null or ends in zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddy_watch_piece_is(address: u64, bytes: u64, name: *const c_char) {
    // SAFETY: the caller's promise.
    unsafe { PIECES.name(address, bytes, name) };
}
