//! The threads that computations share.

use std::{
    sync::{Arc, Mutex},
    thread,
};

use crate::say;

/// Makes rayon use as many threads as the system lets start: its own pool panics if one of them
/// cannot. Only the first call in a process has an effect.
pub fn start() {
    let asked = std::env::var("RAYON_NUM_THREADS").ok().and_then(|text| text.parse().ok()).filter(|&n| n > 0);
    let wanted = asked.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    let started = startable(wanted);
    if started == wanted {
        return;
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(started.max(1));
    let pool = if started == 0 { pool.use_current_thread() } else { pool };
    // An error says that the pool exists already, as in a second call from Python.
    if pool.build_global().is_ok() {
        say(format_args!("note: the system starts {started} of {wanted} threads (ulimit -u, pids.max)"));
    }
}

/// Returns how many of `wanted` threads can live at once.
fn startable(wanted: usize) -> usize {
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock();
    let waiting = || {
        let gate = Arc::clone(&gate);
        thread::Builder::new().spawn(move || drop(gate.lock()))
    };
    let threads: Vec<_> = (0..wanted).map_while(|_| waiting().ok()).collect();
    drop(closed);
    let started = threads.len();
    threads.into_iter().for_each(|thread| drop(thread.join()));
    started
}
