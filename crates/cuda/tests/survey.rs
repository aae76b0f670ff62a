//! Survey sizes, of the kernel run on the CPU (`emu.h`) and on a real GPU, and allocations that own
//! their memory. Without a GPU the tests that need one report that they were skipped; with
//! `BUDDY_REQUIRE_GPU=1` they fail instead.

use std::{
    io::Write,
    ops::Range,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use buddy_codec::{Codec, CodecKind, EntryCodec, testing};
use buddy_core::{ENTRY_BYTES, Entry, Histogram, Target, is_zero, last_entry, optimistic_bytes};
use buddy_cuda::{Allocation, DeviceBytes, DeviceSpan, Error, Gpu, Params, Source, Surveyed};
use buddy_gpu_lab::{Fill, Lab, on_gpu};

fn download(bytes: &DeviceBytes) -> Vec<u8> {
    let mut host = vec![0; bytes.len() as usize];
    bytes.download(&mut host).unwrap();
    host
}

/// The CPU's result for the same bytes: the histogram and each entry's class.
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

/// Spans of all lengths and codecs in one survey, with classes, equal the CPU's result. Most codecs
/// share memory.
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
                let own = if index % 6 == 5 { index } else { 0 };
                let first = 16 * (own + 5 * number) as u64;
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

/// Builds the kernel of these codecs for the CPU.
fn emulated(kinds: &[CodecKind]) -> PathBuf {
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("sizes-{}", kinds[0]));
    let source = Source::survey(kinds).unwrap();
    let status = Command::new(std::env::var_os("CXX").unwrap_or("g++".into()))
        .args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined"])
        .arg("-fno-sanitize-recover=all")
        .args(source.defines.iter().map(|define| format!("-D{define}")))
        .args([concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sizes.cpp"), "-o"])
        .arg(&program)
        .status();
    assert!(status.expect("a C++ compiler ($CXX or g++)").success(), "sizes.cpp does not compile");
    program
}

/// Returns the emulated kernel's histograms for each codec and part of the data, in this order, and
/// the classes.
fn ask(
    program: &Path,
    data: &[u8],
    parts: &[Range<usize>],
    codecs: &[Vec<Codec>],
) -> (Vec<Histogram>, Vec<u8>) {
    let (mut spans, mut wanted, mut learned) = (Vec::new(), Vec::new(), Vec::<u32>::new());
    let (mut tiles, mut classes) = (0, 0);
    for (row, (part, codecs)) in parts.iter().zip(codecs).enumerate() {
        spans.extend([part.start as u64, part.len() as u64, tiles, row as u64]);
        tiles += part.len().div_ceil(32 * ENTRY_BYTES) as u64;
        for codec in codecs {
            // Only every second part requests classes.
            let to = if row % 2 == 0 { classes as u64 } else { u64::MAX };
            wanted.extend([to, u64::from(Params::of(codec).window()), learned.len() as u64 / 4]);
            learned.extend(codec.block());
            learned.resize(learned.len().next_multiple_of(4), 0);
            classes += part.len().div_ceil(ENTRY_BYTES);
        }
    }
    learned.extend([0; 4]);
    let lines = data.len() / ENTRY_BYTES;
    let how = [lines, parts.len(), wanted.len() / 3, tiles as usize, classes, learned.len() / 4, 3];
    let numbers = how.iter().map(|&number| number as u64);
    let mut message: Vec<u8> = numbers.flat_map(u64::to_le_bytes).chain(data.iter().copied()).collect();
    message.extend(spans.iter().chain(&wanted).flat_map(|number| number.to_le_bytes()));
    message.extend(learned.iter().flat_map(|word| word.to_le_bytes()));
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&message));
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    writer.join().unwrap().unwrap();
    let (sums, classes) = output.stdout.split_at(output.stdout.len() - classes);
    let sums: Vec<u64> = sums.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
    let histogram =
        |sums: &[u64; 7]| Histogram { classes: *sums.first_chunk().unwrap(), optimistic_bytes: sums[6] };
    (sums.as_chunks().0.iter().map(histogram).collect(), classes.to_vec())
}

/// Every group of codecs, with partial entries and partial tiles, and with more spans than warps.
#[test]
#[cfg(target_arch = "x86_64")]
fn the_kernel_finds_what_the_codecs_find() {
    let data = testing::samples().repeat(3).into_flattened();
    let lengths = [9000, 1, 128, 130, 4096, 4097, 5, 12_345, 8192, 127];
    let parts: Vec<Range<usize>> =
        lengths.iter().enumerate().map(|(at, length)| 16 * at..16 * at + length).collect();
    assert!(parts.iter().all(|part| part.end <= data.len()), "{} bytes of samples", data.len());
    let kinds: Vec<CodecKind> = buddy_cuda::codecs().collect();
    for kinds in buddy_cuda::survey_groups(&kinds) {
        let train = |part: &Range<usize>| {
            let sample = data[part.clone()].as_chunks::<ENTRY_BYTES>().0;
            kinds.iter().map(|kind| kind.train(sample)).collect::<Vec<Codec>>()
        };
        let codecs: Vec<Vec<Codec>> = parts.iter().map(train).collect();
        let (found, classes) = ask(&emulated(&kinds), &data, &parts, &codecs);
        let mut at = 0;
        for (row, (part, codecs)) in parts.iter().zip(&codecs).enumerate() {
            for (number, codec) in codecs.iter().enumerate() {
                let (histogram, each) = expected(&data[part.clone()], codec);
                assert_eq!(found[number * parts.len() + row], histogram, "{codec:?} {part:?}");
                let seen = &classes[at..at + each.len()];
                assert!(if row % 2 == 0 { seen == each } else { seen.iter().all(|&class| class == 9) });
                at += each.len();
            }
        }
    }
}

#[test]
fn memory_of_the_host_is_refused() {
    on_gpu(|gpu| {
        let stream = gpu.stream().unwrap();
        let host = vec![0u8; 4096];
        // SAFETY: no condition applies; the call must reject the address.
        let span = unsafe { DeviceSpan::from_raw((host.as_ptr() as u64).next_multiple_of(16), 1024) };
        let one = Surveyed { span, codec: CodecKind::Bpc.train(&[]), classes: None };
        assert!(matches!(gpu.survey(&stream, &[one]), Err(Error::Shape { .. })));
        let allocation = Allocation::new(gpu, 1024, Target::X2, CodecKind::Bpc.train(&[])).unwrap();
        assert!(matches!(allocation.write(&stream, 0, span), Err(Error::Shape { .. })));
    });
}

/// Lengths inside an entry, parts, and rejected arguments.
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

/// The current context is used as is, and survives its borrower.
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
