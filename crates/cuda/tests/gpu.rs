//! The runtime on a real GPU. Without one these tests report that they were skipped; with
//! `BUDDY_REQUIRE_GPU=1` they fail instead.

use buddy_codec::{Bf16, Codec, CodecKind, Csr, Frozen, FrozenHeader};
use buddy_core::{ENTRY_BYTES, Target};
use buddy_cuda::{
    Attend, BuddyPool, BufferBytes, BufferMemory, Carveout, CsrMatrix, DeviceBytes, DeviceSpan, Error,
    ExternalBuffer, FaultKind, FrozenBuffer, Gpu, KvCache, KvMemory, KvRows, KvShape, Linear, Output, Source,
};
use buddy_gpu_lab::{Fill, Lab, on_gpu};
use cudarc::driver::{
    CudaStream, LaunchConfig, PushKernelArg,
    sys::{CUgraphInstantiate_flags, CUstreamCaptureMode},
};

const ENTRIES: u64 = 1 << 12;
const BYTES: u64 = ENTRIES * ENTRY_BYTES as u64;

fn download(bytes: &DeviceBytes) -> Vec<u8> {
    let mut host = vec![0; bytes.len() as usize];
    bytes.download(&mut host).unwrap();
    host
}

/// Write, read, gather, scatter and report, captured once and replayed on other data.
#[test]
fn a_graph_replays_on_new_data() {
    on_gpu(|gpu| {
        let stream = gpu.stream().unwrap();
        let (data, back) = (DeviceBytes::new(gpu, BYTES).unwrap(), DeviceBytes::new(gpu, BYTES).unwrap());
        let list = DeviceBytes::new(gpu, 4 * ENTRIES).unwrap();
        let numbers: Vec<u8> = (0..ENTRIES as u32).rev().flat_map(u32::to_le_bytes).collect();
        list.upload(&numbers).unwrap();
        let mut pool = BuddyPool::new(gpu, BYTES, Carveout::Host, BYTES).unwrap();
        let buffer = pool.buffer(CodecKind::Bpc.train(&[]), Target::X2, ENTRIES).unwrap();
        stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL).unwrap();
        buffer.write(&stream, 0, data.all()).unwrap();
        buffer.gather(&stream, list.all(), back.all()).unwrap();
        buffer.scatter(&stream, list.all(), back.all()).unwrap();
        buffer.read(&stream, 0, back.all()).unwrap();
        buffer.stats(&stream).unwrap();
        let graph = stream.end_capture(CUgraphInstantiate_flags(0)).unwrap().expect("a graph of work");
        let lab = Lab::new(gpu).unwrap();
        for (seed, noise) in [(1, 0.0), (2, 0.3), (3, 1.0)] {
            lab.make(data.all(), Fill::Varied, seed, noise).unwrap();
            back.fill(0xee).unwrap();
            graph.launch().unwrap();
            gpu.wait(&stream).unwrap();
            assert_eq!(download(&back), download(&data), "seed {seed}");
            let stats = buffer.latest();
            assert_eq!((stats.nibbles.iter().sum::<u64>(), stats.fault), (ENTRIES, None));
        }
        assert!(buffer.latest().overflowing > ENTRIES / 2, "noise does not fit 2x");
    });
}

/// A user's kernel, by thread and by warp: the library reads what it stores.
#[test]
fn a_user_kernel_reads_and_writes_a_buffer() {
    const KERNEL: &str = r#"
        #include "buddy_device.cuh"
        using namespace buddy;
        extern "C" __global__ void invert(BuddyView view) {
            __shared__ __align__(128) uint4 chunks[WARP * CHUNKS];
            Tile tile = {chunks, threadIdx.x};
            u64 first = blockIdx.x * (u64)(2 * WARP);
            warp::load_entries<Bpc>(view, tile, first);
            u32 words[WORDS];
            Row(tile).load_all(words);
            for (u32 i = 0; i < WORDS; i++) words[i] = ~words[i];
            warp::store_entries<Bpc>(view, tile, first, words);
            thread::load_entry<Bpc>(view, first + WARP + threadIdx.x, words);
            for (u32 i = 0; i < WORDS; i++) words[i] = ~words[i];
            thread::store_entry<Bpc>(view, first + WARP + threadIdx.x, words);
        }"#;
    on_gpu(|gpu| {
        let stream = gpu.stream().unwrap();
        let (data, back) = (DeviceBytes::new(gpu, BYTES).unwrap(), DeviceBytes::new(gpu, BYTES).unwrap());
        Lab::new(gpu).unwrap().make(data.all(), Fill::Varied, 5, 0.1).unwrap();
        let mut pool = BuddyPool::new(gpu, BYTES, Carveout::Host, BYTES).unwrap();
        let buffer = pool.buffer(CodecKind::Bpc.train(&[]), Target::X2, ENTRIES).unwrap();
        buffer.write(&stream, 0, data.all()).unwrap();
        let module = gpu.module(&Source::new("invert.cu", KERNEL, &[])).unwrap();
        let kernel = module.load_function("invert").unwrap();
        let config = LaunchConfig {
            grid_dim: (ENTRIES as u32 / 64, 1, 1),
            block_dim: (32, 1, 1),
            shared_mem_bytes: 0,
        };
        let view = buffer.view();
        // SAFETY: the kernel's argument and codec; the buffer outlives the wait below.
        unsafe { stream.launch_builder(&kernel).arg(&view).launch(config) }.unwrap();
        buffer.read(&stream, 0, back.all()).unwrap();
        buffer.stats(&stream).unwrap();
        gpu.wait(&stream).unwrap();
        let inverted: Vec<u8> = download(&data).iter().map(|byte| !byte).collect();
        assert_eq!(download(&back), inverted);
        assert_eq!(buffer.latest().fault, None);
    });
}

/// A file as `buddy profile` writes it: one target, or one per range of pages, and bf16's
/// parameters.
#[test]
fn a_file_of_targets_makes_its_buffers() {
    const FILE: &str = r#"
version = 1
program = "example"
[[allocation]]
name = "weights"
bytes = 524288
codec = "bf16"
parameters = { window = 100 }
target = "4/3x"
[[allocation]]
name = "field"
bytes = 24576
codec = "planes64"
ranges = [{ pages = 1, target = "4x" }, { pages = 2, target = "1x" }]
"#;
    on_gpu(|gpu| {
        let stream = gpu.stream().unwrap();
        let mut pool = BuddyPool::new(gpu, 1 << 20, Carveout::Host, 1 << 20).unwrap();
        let table = |text: &str| buddy_record::TargetTable::parse(text).unwrap();
        let lab = Lab::new(gpu).unwrap();
        for (name, buffer) in pool.buffers_by(&table(FILE)).unwrap() {
            let bytes = buffer.entries() * ENTRY_BYTES as u64;
            let (data, back) = (DeviceBytes::new(gpu, bytes).unwrap(), DeviceBytes::new(gpu, bytes).unwrap());
            lab.make(data.all(), Fill::Varied, 7, 0.1).unwrap();
            buffer.write(&stream, 0, data.all()).unwrap();
            buffer.read(&stream, 0, back.all()).unwrap();
            gpu.wait(&stream).unwrap();
            assert_eq!(download(&back), download(&data), "{name}");
        }
        let mut twice = table(FILE);
        twice.allocations.push(twice.allocations[0].clone());
        assert!(matches!(pool.buffers_by(&twice), Err(Error::Targets(_))));
        let left = pool.device_left();
        let too_large = FILE.replace("24576", "245760000").replace("pages = 2", "pages = 29999");
        assert!(matches!(pool.buffers_by(&table(&too_large)), Err(Error::Full { .. })));
        assert_eq!(pool.device_left(), left);
    });
}

#[test]
fn a_new_buffer_holds_zeros_and_lists_are_checked() {
    on_gpu(|gpu| {
        let stream = gpu.stream().unwrap();
        let back = DeviceBytes::new(gpu, 3 * ENTRY_BYTES as u64).unwrap();
        let list = DeviceBytes::new(gpu, 12).unwrap();
        list.upload(bytemuck::cast_slice(&[0u32, ENTRIES as u32, 7])).unwrap();
        let mut pool = BuddyPool::new(gpu, BYTES, Carveout::Host, BYTES).unwrap();
        let buffer = pool.buffer(CodecKind::Bf16.train(&[]), Target::X4, ENTRIES).unwrap();
        back.fill(0xee).unwrap();
        buffer.gather(&stream, list.all(), back.all()).unwrap();
        buffer.stats(&stream).unwrap();
        gpu.wait(&stream).unwrap();
        assert!(download(&back).iter().all(|&byte| byte == 0));
        let fault = buffer.latest().fault.unwrap();
        assert_eq!((fault.entry, fault.kind), (ENTRIES, FaultKind::Range));
        // A fault is reported once.
        buffer.stats(&stream).unwrap();
        gpu.wait(&stream).unwrap();
        assert_eq!(buffer.latest().fault, None);
    });
}

#[test]
fn impossible_requests_are_typed_errors() {
    on_gpu(|gpu| {
        let stream = gpu.stream().unwrap();
        let data = DeviceBytes::new(gpu, BYTES).unwrap();
        let mut pool = BuddyPool::new(gpu, BYTES, Carveout::Device, BYTES).unwrap();
        let buffer = pool.buffer(CodecKind::Bpc.train(&[]), Target::X2, ENTRIES).unwrap();
        let write = |first, range| buffer.write(&stream, first, data.span(range));
        assert_eq!(write(1, 0..BYTES), Err(Error::Range { first: 1, end: ENTRIES + 1, entries: ENTRIES }));
        assert!(matches!(write(0, 0..100), Err(Error::Shape { .. })));
        assert!(matches!(write(0, 8..8 + 128), Err(Error::Shape { .. })));
        assert!(matches!(
            buffer.gather(&stream, data.span(0..8), data.span(0..128)),
            Err(Error::Shape { .. })
        ));
        assert_eq!(write(ENTRIES, 0..0), Ok(()));
        let full = pool.buffer(CodecKind::Bpc.train(&[]), Target::X1, ENTRIES);
        assert!(matches!(full, Err(Error::Full { region: "device", .. })), "{full:?}");
        assert_eq!(pool.clear(), Err(Error::InUse));
        let codec = pool.buffer(CodecKind::Fpc.train(&[]), Target::X2, 64);
        assert!(matches!(codec, Err(Error::NoKernels { codec: CodecKind::Fpc })), "{codec:?}");
    });
}

#[test]
fn too_much_memory_is_refused_with_what_there_is() {
    on_gpu(|gpu| {
        let asked = 1 << 50;
        let Err(Error::Pinned { asked: said, available, .. }) = BuddyPool::new(gpu, 0, Carveout::Host, asked)
        else {
            panic!("a pebibyte was pinned");
        };
        assert!(said == asked && available > 0 && available < asked);
        let refused = BuddyPool::new(gpu, asked, Carveout::Device, 0);
        assert!(
            matches!(refused, Err(Error::DeviceMemory { asked: said, free }) if said == asked && free > 0)
        );
    });
}

/// For every codec and target, the GPU's frozen buffer equals the CPU's in every byte, and reads
/// back.
#[test]
fn frozen_buffers_are_the_cpus() {
    on_gpu(|gpu| {
        let (stream, lab) = (gpu.stream().unwrap(), Lab::new(gpu).unwrap());
        let entries = 61 * 40;
        let (data, back) =
            (DeviceBytes::new(gpu, 128 * entries).unwrap(), DeviceBytes::new(gpu, 128 * entries).unwrap());
        for codec in buddy_cuda::codecs().map(|kind| kind.train(&[])) {
            lab.make(data.all(), Fill::Varied, 3, 0.05).unwrap();
            for target in Target::ALL {
                for row in [0, 40] {
                    let most = FrozenBuffer::room(&codec, target, row, data.len(), 1 << 16);
                    let memory = DeviceBytes::new(gpu, most).unwrap();
                    memory.fill(0).unwrap();
                    let packed =
                        FrozenBuffer::pack(gpu, &stream, (&codec, target, row), data.all(), memory.all())
                            .unwrap();
                    back.fill(0xee).unwrap();
                    packed.read(&stream, 0, back.all()).unwrap();
                    gpu.wait(&stream).unwrap();
                    let plain = download(&data);
                    assert_eq!(plain, download(&back), "{codec:?} at {target}, rows of {row}");
                    let ours = buddy_codec::freeze(&codec, target, row, &plain).unwrap();
                    let theirs = download(&memory);
                    assert!(
                        ours == theirs[..ours.len()],
                        "{codec:?} at {target}, rows of {row}: other bytes"
                    );
                    assert_eq!(Frozen::open(&ours).unwrap().read().unwrap(), plain);
                }
            }
        }
    });
}

/// Uploads numbers to device memory.
fn upload<const BYTES: usize>(gpu: &Gpu, numbers: impl Iterator<Item = [u8; BYTES]>) -> DeviceBytes {
    let host: Vec<u8> = numbers.flatten().collect();
    let bytes = DeviceBytes::new(gpu, host.len() as u64).unwrap();
    bytes.upload(&host).unwrap();
    bytes
}

/// Memory of a KV cache with one sequence.
struct Kv {
    parts: [DeviceBytes; 3],
    table: DeviceBytes,
    lengths: DeviceBytes,
    slots: DeviceBytes,
    scratch: DeviceBytes,
    attended: DeviceBytes,
}

impl Kv {
    const SHAPE: KvShape = KvShape { layers: 1, pages: 4, heads: 2, head_values: 128, page_tokens: 64 };
    const TOKENS: u32 = 200;
    /// Query heads per KV head, and bytes of queries and output.
    const GROUP: u32 = 4;
    const ASKED: u64 = 2 * (2 * Self::GROUP as u64) * 128;

    fn new(gpu: &Gpu) -> Self {
        let (bytes, room) = (Self::SHAPE.bytes(), |bytes| DeviceBytes::new(gpu, bytes).unwrap());
        let scratch = room(Self::SHAPE.scratch_bytes(1, gpu.multiprocessors()));
        scratch.fill(0).unwrap();
        Self {
            parts: [bytes.entries, bytes.overflow, bytes.metadata].map(room),
            table: upload(gpu, (0..4).map(i32::to_le_bytes)),
            lengths: upload(gpu, [Self::TOKENS].map(u32::to_le_bytes).into_iter()),
            slots: upload(gpu, (0..u64::from(Self::TOKENS)).map(u64::to_le_bytes)),
            scratch,
            attended: room(Self::ASKED),
        }
    }

    /// Clears the cache, chooses windows, appends all tokens and attends to them.
    fn attend(&self, gpu: &Gpu, stream: &CudaStream, rows: DeviceSpan<'_>, queries: DeviceSpan<'_>) {
        let [entries, overflow, metadata] = self.parts.each_ref().map(DeviceBytes::all);
        let cache = KvCache::over(gpu, Self::SHAPE, KvMemory { entries, overflow, metadata }).unwrap();
        cache.clear(stream).unwrap();
        let (layer, layers, tokens) = (0, 1, Self::TOKENS);
        let rows =
            KvRows { keys: rows, values: rows, layer_stride: 0, token_stride: 256, layer, layers, tokens };
        cache.train(stream, &rows, None).unwrap();
        cache.append(stream, &rows, self.slots.all()).unwrap();
        let asked = Attend {
            layer,
            sequences: 1,
            tokens: 1,
            group: Self::GROUP,
            scale: 0.1,
            queries: queries.part(0..Self::ASKED),
            out: self.attended.all(),
            table: self.table.all(),
            lengths: self.lengths.all(),
            scratch: self.scratch.all(),
        };
        // SAFETY: the table's pages are the cache's, and all tokens were appended.
        unsafe { cache.attend(stream, &asked) }.unwrap();
    }
}

/// Writes and reads a buffer over given memory; freezes, multiplies and rereads it; appends keys
/// and values and attends to them.
#[test]
fn a_graph_of_buffer_layer_and_attention_replays_a_thousand_times() {
    on_gpu(|gpu| {
        let (stream, lab) = (gpu.stream().unwrap(), Lab::new(gpu).unwrap());
        let (rows, columns, tokens) = (1000u64, 1024u64, 20u64);
        let room = |bytes| DeviceBytes::new(gpu, bytes).unwrap();
        let (weights, x, y) = (room(rows * columns * 2), room(tokens * columns * 2), room(tokens * rows * 4));
        lab.make(weights.all(), Fill::Weights, 1, 0.01).unwrap();
        lab.make(x.all(), Fill::Weights, 2, 0.0).unwrap();
        let (codec, target, row) =
            (Codec::Bf16(Bf16::new(108).unwrap()), Target::X4Over3, (columns / 64) as u32);
        let (copied, back) = (room(weights.len()), room(weights.len()));
        let of = BufferBytes::of(target, weights.len());
        let parts = [of.device, of.metadata, of.overflow].map(room);
        let frozen = room(FrozenBuffer::room(&codec, target, row, weights.len(), 1 << 14));
        let header = FrozenHeader { codec: codec.clone(), target, bytes: weights.len(), row, sectors: 0 };
        let scratch = room(Linear::room(gpu, &header, tokens as u32).unwrap());

        let kv = Kv::new(gpu);
        let work = || {
            let given =
                BufferMemory { device: parts[0].all(), metadata: parts[1].all(), overflow: parts[2].all() };
            let buffer = ExternalBuffer::new(gpu, &codec, target, weights.len(), given).unwrap();
            buffer.clear(&stream).unwrap();
            buffer.write(&stream, 0, weights.all()).unwrap();
            buffer.read(&stream, 0, copied.all()).unwrap();
            let packed =
                FrozenBuffer::pack(gpu, &stream, (&codec, target, row), copied.all(), frozen.all()).unwrap();
            Linear::prepare(gpu, &stream, scratch.all()).unwrap();
            for overlaps in [false, true] {
                let (x, y, scratch, output) = (x.all(), y.all(), scratch.all(), Output::Fp32);
                let linear =
                    Linear { weights: (&packed).into(), x, bias: None, y, output, scratch, overlaps };
                linear.start(&stream).unwrap();
            }
            packed.read(&stream, 0, back.all()).unwrap();
            kv.attend(gpu, &stream, weights.all(), x.all());
        };
        work();
        gpu.wait(&stream).unwrap();
        let found = || [&y, &back, &kv.attended].map(download);
        let (expected, plain) = (found(), download(&weights));
        assert!(expected[1] == plain && expected[2].iter().any(|&byte| byte != 0));
        stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL).unwrap();
        work();
        let graph = stream.end_capture(CUgraphInstantiate_flags(0)).unwrap().expect("a graph of work");
        for replay in 0..1000 {
            graph.launch().unwrap();
            if replay % 100 == 99 {
                gpu.wait(&stream).unwrap();
                assert!(found() == expected, "replay {replay}");
                [&y, &back, &kv.attended].into_iter().for_each(|one| one.fill(0xee).unwrap());
            }
        }
    });
}

/// A sparse product has the bits of the CPU's, also for a row that lies in several tiles.
#[test]
fn sparse_products_equal_those_of_the_cpu() {
    on_gpu(|gpu| {
        let uneven = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) as f64 / (1u64 << 53) as f64;
        let lengths = (0..5000u64).map(|row| if row == 70 { 20_000 } else { row * row % 90 });
        let starts: Vec<u64> = std::iter::once(0)
            .chain(lengths.scan(0, |sum, length| {
                *sum += length;
                Some(*sum)
            }))
            .collect();
        let elements = 0..starts[5000];
        let indices: Vec<u32> = elements.clone().map(|i| (uneven(i) * 4000.0) as u32).collect();
        let values: Vec<f64> = elements.map(|i| uneven(i + 7) - 0.5).collect();
        let matrix = Csr::pack(4000, &starts, &indices, &values).unwrap();
        let (on_gpu, stream) = (CsrMatrix::new(gpu, &matrix).unwrap(), gpu.stream().unwrap());
        for columns in [1, 2, 3, 8] {
            let x: Vec<f64> = (0..4000 * columns).map(uneven).collect();
            let mut y = vec![0.0f64; 5000 * columns as usize];
            matrix.multiply(&x, &mut y, columns as usize).unwrap();
            let (from, to) =
                (DeviceBytes::new(gpu, 32_000 * columns), DeviceBytes::new(gpu, 40_000 * columns));
            let (from, to) = (from.unwrap(), to.unwrap());
            from.upload(&x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
            on_gpu.multiply(&stream, from.all(), to.all(), columns as u32).unwrap();
            gpu.wait(&stream).unwrap();
            assert!(download(&to) == y.iter().flat_map(|y| y.to_le_bytes()).collect::<Vec<u8>>());
        }
        let short = DeviceBytes::new(gpu, 8).unwrap();
        let refused = on_gpu.multiply(&stream, short.all(), short.all(), 1).unwrap_err();
        assert!(matches!(refused, Error::Shape { .. }), "{refused}");
    });
}
