//! The kernels' reads of a frozen buffer, compiled as plain C++ under sanitisers, equal the Rust
//! reference: place, sector and values of every entry, in order and in tiles. Corrupt buffers are
//! survived.

use std::{
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
    sync::OnceLock,
};

use buddy_codec::{Bf16, Codec, Frozen, freeze, testing};
use buddy_core::{ENTRY_BYTES, Target};

const WINDOW: u8 = 112;

/// Builds the program once.
fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("frozen");
        let status = Command::new(std::env::var_os("CXX").unwrap_or("g++".into()))
            .args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror"])
            .args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"])
            .args(buddy_cuda::constants().iter().map(|define| format!("-D{define}")))
            .args([concat!(env!("CARGO_MANIFEST_DIR"), "/tests/frozen.cpp"), "-o"])
            .arg(&program)
            .status();
        assert!(status.expect("a C++ compiler ($CXX or g++)").success(), "frozen.cpp does not compile");
        program
    })
}

/// Returns place, sector and bytes of each entry.
fn ask(frozen: &[u8]) -> Vec<(u64, u64, Vec<u8>)> {
    let header = Frozen::open(frozen).unwrap().header().clone();
    let parts = header.parts();
    let ranges = [parts.device, parts.nibbles, parts.index, parts.overflow];
    let head = [96, header.row, header.sectors, u32::from(WINDOW)];
    let mut message: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
    message.extend(header.entries().to_le_bytes());
    message.extend(ranges.iter().flat_map(|range| (range.end - range.start).to_le_bytes()));
    message.extend(ranges.iter().flat_map(|range| &frozen[range.start as usize..range.end as usize]));
    let mut child = Command::new(program()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&message));
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "a sanitiser stopped it, or it found an order that is none");
    writer.join().unwrap().unwrap();
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    let answer = |one: &[u8]| (number(&one[..8]), number(&one[8..16]), one[16..].to_vec());
    output.stdout.chunks(16 + ENTRY_BYTES).map(answer).collect()
}

/// Samples of every kind, and normal weights, for whole rows of `row` entries.
fn data(row: usize) -> Vec<u8> {
    let mut entries = testing::samples();
    for seed in 0..200u32 {
        let value = |i: u32| {
            let hash = (seed * 64 + i).wrapping_mul(0x9e37_79b9).rotate_left(13).wrapping_mul(0x85eb_ca6b);
            let low =
                if hash.is_multiple_of(29) && seed % 3 == 0 { 40 + seed } else { 116 + (hash >> 8) % 6 };
            ((hash & 0x807f | low << 7) as u16).to_le_bytes()
        };
        entries.push(std::array::from_fn(|i| value(i as u32 / 2)[i % 2]));
    }
    entries.truncate(entries.len() / row.max(1) * row.max(1));
    entries.into_flattened()
}

#[test]
fn reads_equal_the_reference() {
    let codec = Codec::Bf16(Bf16::new(WINDOW).unwrap());
    for row in [0, 1, 3, 7] {
        let data = data(row);
        let frozen = freeze(&codec, Target::X4Over3, row as u32, &data).unwrap();
        let open = Frozen::open(&frozen).unwrap();
        assert!(open.header().sectors > 10, "some overflow");
        for (entry, (place, sector, bytes)) in ask(&frozen).into_iter().enumerate() {
            assert_eq!(place, open.header().slot_of(entry as u64));
            assert_eq!(bytes, data[entry * ENTRY_BYTES..][..ENTRY_BYTES], "rows of {row}, entry {entry}");
            assert!(sector == u64::MAX || sector < u64::from(open.header().sectors));
        }
    }
}

#[test]
fn corrupt_buffers_are_survived() {
    let codec = Codec::Bf16(Bf16::new(WINDOW).unwrap());
    let data = data(3);
    let mut random = 1u64;
    let mut next = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    for _ in 0..20 {
        let mut frozen = freeze(&codec, Target::X4Over3, 3, &data).unwrap();
        let parts = Frozen::open(&frozen).unwrap().header().parts();
        let (first, last) = (parts.device.start as usize, frozen.len());
        for _ in 0..50 {
            frozen[first + next(last - first)] = next(256) as u8;
        }
        for at in parts.index.start..parts.index.start + 12 {
            frozen[at as usize] = next(256) as u8;
        }
        let open = Frozen::open(&frozen).unwrap();
        for (entry, (_, _, bytes)) in ask(&frozen).into_iter().enumerate() {
            if let Ok(read) = open.entry(entry as u64) {
                assert_eq!(read.to_vec(), bytes, "entry {entry}");
            }
        }
    }
}
