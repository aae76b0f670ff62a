//! Writable matrices, and windows trained without waiting, on a real GPU. Without one these tests
//! report that they were skipped; with `BUDDY_REQUIRE_GPU=1` they fail instead.

use buddy_codec::{Bf16, Codec, CodecKind};
use buddy_core::Target;
use buddy_cuda::{
    BufferBytes, BufferMemory, CudaStream, DeviceBytes, DeviceSpan, ExternalBuffer, FrozenBuffer, Gpu,
    Linear, Output, Weights, WritableMatrix,
};
use buddy_gpu_lab::{Fill, Lab, on_gpu};
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};

fn download(bytes: &DeviceBytes) -> Vec<u8> {
    let mut host = vec![0; bytes.len() as usize];
    bytes.download(&mut host).unwrap();
    host
}

/// The parts of a buffer.
struct Parts([DeviceBytes; 3]);

impl Parts {
    fn new(gpu: &Gpu, room: BufferBytes) -> Self {
        Self([room.device, room.metadata, room.overflow].map(|bytes| DeviceBytes::new(gpu, bytes).unwrap()))
    }

    fn given(&self) -> BufferMemory<'_> {
        let [device, metadata, overflow] = &self.0;
        BufferMemory { device: device.all(), metadata: metadata.all(), overflow: overflow.all() }
    }
}

/// Returns y = W x as fp32.
fn multiply(
    gpu: &Gpu,
    stream: &CudaStream,
    weights: Weights<'_>,
    x: DeviceSpan<'_>,
    outputs: u64,
) -> Vec<u8> {
    let header = weights.header();
    let tokens = x.bytes() / (u64::from(header.row) * 128);
    let y = DeviceBytes::new(gpu, tokens * outputs * 4).unwrap();
    let scratch = DeviceBytes::new(gpu, Linear::room(gpu, header, tokens as u32).unwrap()).unwrap();
    Linear::prepare(gpu, stream, scratch.all()).unwrap();
    let (y_span, scratch, output) = (y.all(), scratch.all(), Output::Fp32);
    Linear { weights, x, bias: None, y: y_span, output, scratch, overlaps: false }.start(stream).unwrap();
    gpu.wait(stream).unwrap();
    download(&y)
}

/// Rows are written, some of them twice, and read back; linear layers give the same bits as with
/// frozen weights.
#[test]
fn a_rewritten_matrix_multiplies_like_a_frozen_one() {
    on_gpu(|gpu| {
        let (stream, lab) = (gpu.stream().unwrap(), Lab::new(gpu).unwrap());
        let bf16 = Bf16::new(108).unwrap();
        for (rows, columns) in [(1000u64, 1088u64), (37, 64), (512, 4096)] {
            let bytes = |rows: u64| rows * columns * 2;
            let [plain, other, back] = [(); 3].map(|()| DeviceBytes::new(gpu, bytes(rows)).unwrap());
            lab.make(plain.all(), Fill::Weights, 1, 0.02).unwrap();
            lab.make(other.all(), Fill::Weights, 2, 0.5).unwrap();
            let parts = Parts::new(gpu, WritableMatrix::room(rows as u32, columns as u32).unwrap());
            let matrix =
                WritableMatrix::new(gpu, bf16, (rows as u32, columns as u32), parts.given()).unwrap();
            matrix.clear(&stream).unwrap();
            matrix.read(&stream, 0, back.all()).unwrap();
            gpu.wait(&stream).unwrap();
            assert!(download(&back).iter().all(|&byte| byte == 0), "a cleared matrix is zeros");
            matrix.write(&stream, 0, plain.all()).unwrap();
            let (mut expected, new) = (download(&plain), download(&other));
            for (first, count) in [(0, 1), (3, 17), (rows - 5, 5), (16, 16)] {
                let range = bytes(first)..bytes(first + count);
                matrix.write(&stream, first as u32, other.span(range.clone())).unwrap();
                let range = range.start as usize..range.end as usize;
                expected[range.clone()].copy_from_slice(&new[range]);
            }
            matrix.read(&stream, 0, back.all()).unwrap();
            gpu.wait(&stream).unwrap();
            assert!(download(&back) == expected, "{rows} x {columns}: what was written is read");
            let some = DeviceBytes::new(gpu, bytes(9)).unwrap();
            matrix.read(&stream, 7, some.all()).unwrap();
            gpu.wait(&stream).unwrap();
            assert!(download(&some) == expected[bytes(7) as usize..bytes(16) as usize]);
            assert!(matrix.write(&stream, rows as u32 - 4, some.all()).is_err(), "rows past the last");

            let (codec, row) = (Codec::Bf16(bf16), (columns / 64) as u32);
            let room = FrozenBuffer::room(&codec, Target::X4Over3, row, bytes(rows), 1 << 16);
            let memory = DeviceBytes::new(gpu, room).unwrap();
            let how = (&codec, Target::X4Over3, row);
            let frozen = FrozenBuffer::pack(gpu, &stream, how, back.all(), memory.all()).unwrap();
            for tokens in [1, 8, 20, 100, 300, 600, 1600] {
                let x = DeviceBytes::new(gpu, tokens * columns * 2).unwrap();
                lab.make(x.all(), Fill::Weights, 3, 0.0).unwrap();
                let y = multiply(gpu, &stream, (&matrix).into(), x.all(), rows);
                assert!(y.iter().any(|&byte| byte != 0));
                let same = multiply(gpu, &stream, (&frozen).into(), x.all(), rows);
                assert!(y == same, "{rows} x {columns}, {tokens} tokens: the sums of frozen weights");
            }
        }
    });
}

/// The window equals that of training with a wait, and a buffer that uses it in place holds the
/// same bytes; also in a graph.
#[test]
fn a_window_is_trained_and_used_without_a_wait() {
    on_gpu(|gpu| {
        let (stream, lab) = (gpu.stream().unwrap(), Lab::new(gpu).unwrap());
        let (window, bytes) = (DeviceBytes::new(gpu, 4).unwrap(), 1000 * 128u64);
        let [data, back] = [(); 2].map(|()| DeviceBytes::new(gpu, bytes).unwrap());
        let room = BufferBytes::of(Target::X4Over3, bytes);
        let (ours, theirs) = (Parts::new(gpu, room), Parts::new(gpu, room));
        let work = || {
            gpu.train_window(&stream, data.all(), window.all()).unwrap();
            let buffer =
                ExternalBuffer::with_window(gpu, window.all(), Target::X4Over3, bytes, ours.given()).unwrap();
            buffer.clear(&stream).unwrap();
            buffer.write(&stream, 0, data.all()).unwrap();
            buffer.read(&stream, 0, back.all()).unwrap();
        };
        work();
        gpu.wait(&stream).unwrap();
        stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL).unwrap();
        work();
        let graph = stream.end_capture(CUgraphInstantiate_flags(0)).unwrap().expect("a graph of work");
        for (seed, fill) in [Fill::Weights, Fill::Varied].into_iter().enumerate() {
            lab.make(data.all(), fill, seed as u64, 0.01).unwrap();
            graph.launch().unwrap();
            gpu.wait(&stream).unwrap();
            let codec = gpu.train(&stream, CodecKind::Bf16, data.all()).unwrap();
            let Codec::Bf16(trained) = &codec else { panic!("bf16 is trained as bf16") };
            assert_eq!(download(&window), u32::from(trained.window()).to_le_bytes());
            assert!(download(&back) == download(&data), "what was written is read");
            let buffer = ExternalBuffer::new(gpu, &codec, Target::X4Over3, bytes, theirs.given()).unwrap();
            buffer.clear(&stream).unwrap();
            buffer.write(&stream, 0, data.all()).unwrap();
            buffer.read(&stream, 0, back.all()).unwrap();
            gpu.wait(&stream).unwrap();
            assert!(download(&ours.0[1]) == download(&theirs.0[1]), "the same nibbles");
            assert!(download(&back) == download(&data));
        }
    });
}
