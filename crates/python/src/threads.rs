//! Computations on rayon's threads, without the GIL.

use std::sync::Once;

use pyo3::prelude::*;

static STARTED: Once = Once::new();

/// Runs `compute` without the GIL. The first call starts the threads that all calls share, as many
/// as the system lets start.
pub(crate) fn detach<T: Send>(py: Python<'_>, compute: impl FnOnce() -> T + Send) -> T {
    py.detach(|| {
        STARTED.call_once(buddy_cli::start_threads);
        compute()
    })
}
