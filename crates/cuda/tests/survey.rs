//! Sizes counted in place, and allocations that own their memory, on a real GPU. Without one these tests say that they
//! were skipped; with `BUDDY_REQUIRE_GPU=1` they fail instead.

use buddy_codec::{Codec, CodecKind, EntryCodec};
use buddy_core::{ENTRY_BYTES, Entry, Histogram, Target, is_zero, last_entry, optimistic_bytes};
use buddy_cuda::{Allocation, DeviceBytes, DeviceSpan, Error, Gpu, Surveyed};
use buddy_gpu_lab::{Fill, Lab, on_gpu};

fn download(bytes: &DeviceBytes) -> Vec<u8> {
    let mut host = vec![0; bytes.len() as usize];
    bytes.download(&mut host).unwrap();
    host
}

/// What the CPU says of the same bytes: the histogram and each entry's class.
fn expected(bytes: &[u8], codec: &Codec) -> (Histogram, Vec<u8>) {
    let (whole, rest) = bytes.as_chunks::<ENTRY_BYTES>();
    let last = last_entry(rest);
    let entries: Vec<Entry> = whole.iter().copied().chain(last).collect();
    let mut histogram = Histogram::default();
    for entry in &entries {
        histogram.add(codec.class(entry), optimistic_bytes(codec.size_bits(entry), is_zero(entry)));
    }
    (histogram, entries.iter().map(|entry| codec.class(entry).index() as u8).collect())
}

/// Spans of all lengths and codecs in one survey, with classes, are what the CPU finds.
#[test]
fn a_survey_is_what_the_cpu_finds() {
    on_gpu(|gpu| {
        let stream = gpu.stream().unwrap();
        let lengths = [1u64 << 20, 128, 0, 4096, 4097, 130, 1, 77_777];
        let data = DeviceBytes::new(gpu, 1 << 21).unwrap();
        Lab::new(gpu).unwrap().make(data.all(), Fill::Varied, 3, 0.1).unwrap();
        let host = download(&data);
        let classes = DeviceBytes::new(gpu, 1 << 20).unwrap();
        classes.fill(9).unwrap();
        let (mut surveyed, mut places, mut at) = (Vec::new(), Vec::new(), 0);
        for (index, kind) in buddy_cuda::codecs().enumerate() {
            for (number, &length) in lengths.iter().enumerate() {
                let first = 16 * (index + 5 * number) as u64;
                let entries = length.div_ceil(ENTRY_BYTES as u64);
                let room = classes.span(at..at + entries);
                let span = data.span(first..first + length);
                let codec = gpu.train(&stream, kind, span).unwrap();
                surveyed.push(Surveyed { span, codec, classes: (number != 3).then_some(room) });
                places.push((first as usize, at as usize));
                at += entries;
            }
        }
        let found = gpu.survey(&stream, &surveyed).unwrap();
        let classes = download(&classes);
        for ((one, histogram), (first, at)) in surveyed.iter().zip(found).zip(places) {
            let bytes = &host[first..first + one.span.bytes() as usize];
            let (expected, expected_classes) = expected(bytes, &one.codec);
            assert_eq!(histogram, expected, "{:?} of {} bytes", one.codec, bytes.len());
            let seen = &classes[at..at + expected_classes.len()];
            match one.classes {
                Some(_) => assert_eq!(seen, expected_classes, "{:?}", one.codec),
                None => assert!(seen.iter().all(|&class| class == 9)),
            }
        }
        assert_eq!(download(&data), host, "the memory was only read");
    });
}

#[test]
fn memory_of_the_host_is_refused() {
    on_gpu(|gpu| {
        let stream = gpu.stream().unwrap();
        let host = vec![0u8; 4096];
        // SAFETY: none is needed; the call must refuse the address.
        let span = unsafe { DeviceSpan::from_raw((host.as_ptr() as u64).next_multiple_of(16), 1024) };
        let one = Surveyed { span, codec: CodecKind::Bpc.train(&[]), classes: None };
        assert!(matches!(gpu.survey(&stream, &[one]), Err(Error::Shape { .. })));
        let allocation = Allocation::new(gpu, 1024, Target::X2, CodecKind::Bpc.train(&[])).unwrap();
        assert!(matches!(allocation.write(&stream, 0, span), Err(Error::Shape { .. })));
    });
}

/// Lengths that end inside an entry, parts, and what is refused.
#[test]
fn an_allocation_keeps_every_byte_and_frees_its_memory() {
    on_gpu(|gpu| {
        let stream = gpu.stream().unwrap();
        let data = DeviceBytes::new(gpu, 1 << 20).unwrap();
        let back = DeviceBytes::new(gpu, 1 << 20).unwrap();
        Lab::new(gpu).unwrap().make(data.all(), Fill::Varied, 5, 0.1).unwrap();
        let host = download(&data);
        for bytes in [1u64, 127, 128, 129, 8192, 100_001] {
            for target in Target::ALL {
                let allocation = Allocation::new(gpu, bytes, target, CodecKind::Bpc.train(&[])).unwrap();
                back.fill(0xee).unwrap();
                allocation.write(&stream, 0, data.span(0..bytes)).unwrap();
                allocation.read(&stream, 0, back.span(0..bytes)).unwrap();
                gpu.wait(&stream).unwrap();
                let read = download(&back);
                assert_eq!(read[..bytes as usize], host[..bytes as usize], "{bytes} bytes at {target}");
                assert!(read[bytes as usize..].iter().all(|&byte| byte == 0xee), "nothing after them");
                let stats = allocation.stats(&stream).unwrap();
                assert_eq!(stats.nibbles.iter().sum::<u64>(), bytes.div_ceil(ENTRY_BYTES as u64));
                let cut = allocation.read(&stream, 64, back.span(0..64));
                assert!(matches!(cut, Err(Error::Bytes { .. })));
                let past = allocation.read(&stream, 0, back.span(0..bytes + 1));
                assert!(matches!(past, Err(Error::Bytes { .. })));
            }
        }
        let free = || gpu.info().unwrap().free_bytes;
        let before = free();
        let large = Allocation::new(gpu, 1 << 30, Target::X4Over3, CodecKind::Bpc.train(&[])).unwrap();
        assert!(free() < before - (700 << 20));
        drop(large);
        assert!(free() + (8 << 20) > before, "the memory came back");
    });
}

/// The current context is used as it is, and survives what borrowed it.
#[test]
fn the_current_context_is_borrowed() {
    on_gpu(|gpu| {
        drop(gpu.stream().unwrap());
        let id = Gpu::current_id().unwrap();
        let borrowed = Gpu::current().unwrap();
        let bytes = DeviceBytes::new(&borrowed, 128).unwrap();
        bytes.fill(1).unwrap();
        drop((bytes, borrowed));
        assert_eq!(Gpu::current_id().unwrap(), id);
        DeviceBytes::new(gpu, 128).unwrap().fill(1).unwrap();
        let elsewhere = std::thread::spawn(|| Gpu::current_id().unwrap_err()).join().unwrap();
        assert_eq!(elsewhere, Error::NoContext);
    });
}
