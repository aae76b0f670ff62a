//! Test harness for tests that need a GPU.

use std::{
    io::Write,
    sync::{Mutex, PoisonError},
};

use buddy_cuda::Gpu;

/// Runs a test on the first GPU, one test of the process at a time. Without a GPU it reports a
/// skip, past the test harness, which hides the output of passing tests.
///
/// # Panics
/// Without a GPU, if `BUDDY_REQUIRE_GPU=1`.
pub fn on_gpu(test: impl FnOnce(&Gpu)) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    match Gpu::open(0) {
        Ok(gpu) => test(&gpu),
        Err(error) => {
            let required = std::env::var_os("BUDDY_REQUIRE_GPU").is_some_and(|value| value == "1");
            assert!(!required, "BUDDY_REQUIRE_GPU is set: {error}");
            let _ = writeln!(std::io::stderr(), "SKIPPED, on a GPU: {error}");
        }
    }
}
