//! An error that ends the GPU's context is reported once; then the pool refuses. Alone in its
//! process, since nothing else works in it afterwards.

use buddy_codec::CodecKind;
use buddy_core::Target;
use buddy_cuda::{BuddyPool, Carveout, DeviceBytes, Error, Gpu};
use buddy_gpu_lab::{Lab, on_gpu};

#[test]
fn a_lost_context_is_reported_once_and_then_refused() {
    on_gpu(lose);
}

fn lose(gpu: &Gpu) {
    let stream = gpu.stream().unwrap();
    let data = DeviceBytes::new(gpu, 128 * 64).unwrap();
    let mut pool = BuddyPool::new(gpu, 1 << 16, Carveout::Host, 1 << 16).unwrap();
    let buffer = pool.buffer(CodecKind::Bpc.train(&[]), Target::X2, 64).unwrap();
    buffer.write(&stream, 0, data.all()).unwrap();
    gpu.wait(&stream).unwrap();
    let lab = Lab::new(gpu).unwrap();
    let lost = lab.break_context().unwrap_err();
    assert!(matches!(&lost, buddy_gpu_lab::Error::Gpu(Error::Lost { .. })), "{lost}");
    for refused in [
        gpu.wait(&stream).unwrap_err(),
        buffer.write(&stream, 0, data.all()).unwrap_err(),
        buffer.stats(&stream).unwrap_err(),
        DeviceBytes::new(gpu, 128).unwrap_err(),
        pool.buffer(CodecKind::Bpc.train(&[]), Target::X2, 64).unwrap_err(),
    ] {
        assert!(matches!(refused, Error::Refused { .. }), "{refused}");
    }
}
