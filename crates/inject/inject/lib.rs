//! The library that a watched process loads when CUDA starts (`CUDA_INJECTION64_PATH`).
//!
//! CUPTI calls it at the driver's calls. It maintains a table of the program's device memory, and
//! takes snapshots in which the size kernels survey all of it. The counts go to a log, which the
//! command reads after the program has ended in any way. It uses the standard library alone, so
//! that the build script compiles it with one compiler call. Errors are reported once, and the
//! program continues.

mod accesses;
mod book;
mod calls;
mod cupti;
mod driver;
mod frames;
mod library;
mod lines;
mod look;
mod pieces;
mod settings;
mod site;
mod spacing;
mod spans;
mod training;
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

/// CUDA calls this when a process starts to use it.
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

/// Reports once why watching stopped.
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

/// Calls `act` with the watcher, unless this thread is inside already.
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
        // SAFETY: data of the resource domain, valid during the callback.
        let context = unsafe { (*data.cast::<ResourceData>()).context } as u64;
        return inside(|watcher| watcher.context_ends(context));
    }
    let Some(call) = CALLS.get().and_then(|calls| *calls.get(id as usize)?) else { return };
    // SAFETY: data of the driver domain, valid during the callback.
    let data = unsafe { &*data.cast::<CallData>() };
    // SAFETY: the result is valid at the exit.
    let succeeded = || unsafe { data.result.is_null() || *data.result == 0 };
    let entry = data.site == 0;
    if entry != call.at_entry() || (!entry && call != Call::EndCapture && !succeeded()) {
        return;
    }
    // SAFETY: the parameters of this call, valid during it.
    let parameters = unsafe { Parameters::new(data.parameters) };
    let context = data.context as u64;
    // SAFETY: likewise; names end in zero.
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

/// Takes a snapshot; a program calls this through `buddy_watch.h`.
///
/// # Safety
/// The label is null or ends in zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddy_watch_look_now(label: *const c_char) {
    // SAFETY: the caller's promise.
    let label = if label.is_null() { c"" } else { unsafe { CStr::from_ptr(label) } };
    inside(|watcher| watcher.asked(label));
}

/// Registers a function of a program with its own pool. Whenever it is called, it reports the
/// pool's pieces through `buddy_watch_piece_is`. Null unregisters it.
#[unsafe(no_mangle)]
pub extern "C" fn buddy_watch_pieces_from(tell: Option<Tell>) {
    PIECES.from(tell);
}

/// Reports a piece, called by the function of [`buddy_watch_pieces_from`]; a piece without a name
/// is free.
///
/// # Safety
/// The name is null or ends in zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddy_watch_piece_is(address: u64, bytes: u64, name: *const c_char) {
    // SAFETY: the caller's promise.
    unsafe { PIECES.name(address, bytes, name) };
}
