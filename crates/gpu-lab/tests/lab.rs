//! The laboratory on a real GPU. Without one these tests say that they were skipped; with `BUDDY_REQUIRE_GPU=1` they
//! fail instead.

use buddy_gpu_lab::{Error, Example, Lab, Shapes, check, check_attention, check_linear, on_gpu, tune};

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

/// Every plan: few tokens, tiles of them, and so many that weights are made plain.
#[test]
fn linear_layers_are_right_at_shapes_at_random() {
    on_gpu(|gpu| {
        let lab = Lab::new(gpu).unwrap();
        check_linear(&lab, 200, 8).unwrap();
        check_linear(&lab, 700, 128).unwrap();
        check_linear(&lab, 100, 600).unwrap();
    });
}

#[test]
fn attention_gives_what_plain_memory_gives() {
    on_gpu(|gpu| match check_attention(&Lab::new(gpu).unwrap(), 10) {
        // Not on every GPU.
        Ok(()) | Err(Error::Gpu(buddy_cuda::Error::TooOld { .. })) => {}
        Err(error) => panic!("{error}"),
    });
}
