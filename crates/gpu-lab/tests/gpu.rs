//! The laboratory on a real GPU. Without one these tests say that they were skipped; with `BUDDY_REQUIRE_GPU=1` they
//! fail instead.

use std::{io::Write, sync::Mutex};

use buddy_cuda::Gpu;
use buddy_gpu_lab::{Error, Example, Shapes, check, tune};

/// Runs a test on the GPU, one at a time, or says that there is none.
fn on_gpu(test: impl FnOnce(&Gpu)) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    match Gpu::open(0) {
        Ok(gpu) => test(&gpu),
        Err(error) if std::env::var_os("BUDDY_REQUIRE_GPU").is_some_and(|value| value == "1") => {
            panic!("BUDDY_REQUIRE_GPU is set: {error}")
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED, on a GPU: {error}");
        }
    }
}

#[test]
fn every_codec_and_target_is_the_cpus() {
    on_gpu(|gpu| {
        let report = check(gpu, 8 << 20, |_| {}).unwrap();
        assert_eq!(report.cases.len(), 5 * buddy_cuda::codecs().count());
    });
}

#[test]
fn fused_kernels_give_what_plain_memory_gives() {
    on_gpu(|gpu| {
        for example in [Example::Stencil, Example::Spmv, Example::Product] {
            match tune(gpu, example, Shapes::default()) {
                Ok(rows) => assert!(!rows.is_empty()),
                // Not on every GPU.
                Err(Error::Gpu(buddy_cuda::Error::TooOld { .. })) => {}
                Err(error) => panic!("{example:?}: {error}"),
            }
        }
    });
}
