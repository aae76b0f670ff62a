//! An error that ends the GPU's context is reported once; then the pool refuses. Alone in its process, since
//! nothing else works in it afterwards.

use std::io::Write;

use buddy_codec::CodecKind;
use buddy_core::Target;
use buddy_cuda::{BuddyPool, Carveout, DeviceBytes, Error, Gpu, Targets};

/// Says that a test was skipped, past the test harness, which hides what passing tests print.
fn skip(error: &Error) {
    let _ = writeln!(std::io::stderr(), "SKIPPED, on a GPU: {error}");
}

#[test]
fn a_lost_context_is_reported_once_and_then_refused() {
    let gpu = match Gpu::open(0) {
        Ok(gpu) => gpu,
        Err(error) => {
            let required = std::env::var_os("BUDDY_REQUIRE_GPU").is_some_and(|value| value == "1");
            assert!(!required, "BUDDY_REQUIRE_GPU is set: {error}");
            skip(&error);
            return;
        }
    };
    let stream = gpu.stream().unwrap();
    let data = DeviceBytes::new(&gpu, 128 * 64).unwrap();
    let mut pool = BuddyPool::new(&gpu, 1 << 16, Carveout::Host, 1 << 16).unwrap();
    let buffer = pool.buffer(CodecKind::Bpc.train(&[]), Targets::Uniform(Target::X2, 64)).unwrap();
    buffer.write(&stream, 0, data.all()).unwrap();
    gpu.wait(&stream).unwrap();
    let lab = buddy_gpu_lab::Lab::new(&gpu).unwrap();
    lab.break_context().unwrap();
    let lost = gpu.wait(&stream).unwrap_err();
    assert!(matches!(&lost, Error::Lost { .. }), "{lost}");
    for refused in [
        gpu.wait(&stream).unwrap_err(),
        buffer.write(&stream, 0, data.all()).unwrap_err(),
        buffer.stats(&stream).unwrap_err(),
        DeviceBytes::new(&gpu, 128).unwrap_err(),
        pool.buffer(CodecKind::Bpc.train(&[]), Targets::Uniform(Target::X2, 64)).unwrap_err(),
    ] {
        assert!(matches!(refused, Error::Refused { .. }), "{refused}");
    }
}
