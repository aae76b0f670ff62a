//! Writable matrices of the kernels, run on the CPU (`emu.h`): stored like frozen ones except for
//! overflow, rows written twice read back, and a window equals that of the codec's own training.
#![cfg(target_arch = "x86_64")]

use std::{
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
};

use buddy_codec::{Bf16, Codec, CodecKind, FrozenHeader, freeze, testing};
use buddy_core::{ENTRY_BYTES, Entry, SECTOR_BYTES, Target};

const WINDOW: u8 = 112;
/// The nibble of a raw entry.
const RAW: u8 = 5;

fn build() -> PathBuf {
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("matrix");
    let status = Command::new(std::env::var_os("CXX").unwrap_or("g++".into()))
        .args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined"])
        .args(["-fno-sanitize-recover=all", "-DBUDDY_WARPS=2", "-DBUDDY_WINDOW=112"])
        .args(buddy_cuda::constants().iter().map(|define| format!("-D{define}")))
        .args([concat!(env!("CARGO_MANIFEST_DIR"), "/tests/matrix.cpp"), "-o"])
        .arg(&program)
        .status();
    assert!(status.expect("a C++ compiler ($CXX or g++)").success(), "matrix.cpp does not compile");
    program
}

/// Samples of every kind, and normal values with some far smaller; the seed sets the first one.
fn data(entries: usize, seed: u32) -> Vec<Entry> {
    let normal = (0..entries as u32).map(|at| {
        let value = |i: u32| {
            let hash =
                ((seed + at) * 64 + i).wrapping_mul(0x9e37_79b9).rotate_left(13).wrapping_mul(0x85eb_ca6b);
            let low =
                if hash.is_multiple_of(5) && at % 7 == 0 { 40 + at % 80 } else { 116 + (hash >> 8) % 6 };
            ((hash & 0x807f | low << 7) as u16).to_le_bytes()
        };
        std::array::from_fn(|i| value(i as u32 / 2)[i % 2])
    });
    let samples = testing::samples();
    let few = samples.into_iter().cycle().skip(seed as usize);
    normal.zip(few).enumerate().map(|(at, (one, other))| if at % 3 == 2 { other } else { one }).collect()
}

/// Returns runs and entries per run, as `Gpu::train_window` takes them, and that sample.
fn sample(data: &[Entry]) -> ([u32; 2], Vec<Entry>) {
    let run = 8.min(data.len());
    let runs = 64.min(data.len() / run.max(1));
    let first = |index: usize| index * (data.len() - run) / (runs - 1).max(1);
    let sample = (0..runs).flat_map(|index| data[first(index)..][..run].to_vec()).collect();
    ([runs as u32, run as u32], sample)
}

#[test]
fn a_writable_matrix_has_the_layout_of_a_frozen_one_and_its_rows_can_be_rewritten() {
    let (program, codec) = (build(), Codec::Bf16(Bf16::new(WINDOW).unwrap()));
    for (rows, row, at_once) in [(40u32, 3u32, 40u32), (37, 4, 5), (16, 1, 1), (5, 17, 3)] {
        let entries = (rows * row) as usize;
        let (other, data) = (data(entries, 1000), data(entries, 1));
        let (runs, sample) = sample(&data);
        let how = [rows, row, u32::from(WINDOW), at_once, runs[0], runs[1]];
        let mut message: Vec<u8> = how.iter().flat_map(|word| word.to_le_bytes()).collect();
        message.extend(other.as_flattened());
        message.extend(data.as_flattened());
        let mut child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || stdin.write_all(&message));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        assert!(output.status.success(), "{how:?}");

        let frozen = freeze(&codec, Target::X4Over3, row, other.as_flattened()).unwrap();
        let parts = FrozenHeader::parse(&frozen).unwrap().parts();
        let part = |range: std::ops::Range<u64>| &frozen[range.start as usize..range.end as usize];
        let places = (rows.next_multiple_of(16) * row) as usize;
        let (device, rest) = output.stdout.split_at(places * 96);
        let (nibbles, rest) = rest.split_at(places / 2);
        let (slots, rest) = rest.split_at(places * SECTOR_BYTES);
        let (again, window) = rest.split_at(entries * ENTRY_BYTES);
        assert!(device == &part(parts.device)[..device.len()], "{how:?}: where frozen entries lie");
        assert!(nibbles == &part(parts.nibbles)[..nibbles.len()], "{how:?}: nibbles");
        let mut sectors = part(parts.overflow).chunks_exact(SECTOR_BYTES);
        for place in (0..places).filter(|place| nibbles[place / 2] >> (place % 2 * 4) & 15 == RAW) {
            assert_eq!(Some(&slots[place * SECTOR_BYTES..][..SECTOR_BYTES]), sectors.next());
        }
        assert!(again == data.as_flattened(), "{how:?}: rows that were written again");
        let Codec::Bf16(trained) = CodecKind::Bf16.train(&sample) else { panic!("bf16 is trained as bf16") };
        assert_eq!(window, u32::from(trained.window()).to_le_bytes(), "{how:?}");
    }
}
