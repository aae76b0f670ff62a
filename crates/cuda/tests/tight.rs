//! The kernels that read tight matrices, run on the CPU by `emu.h`: they equal the Rust decoder to
//! the bit, and damaged matrices are read without an access outside of them.
#![cfg(target_arch = "x86_64")]

use std::{
    io::Write,
    ops::Range,
    path::PathBuf,
    process::{Command, Output, Stdio},
    sync::LazyLock,
};

use buddy_codec::{Tight, tighten};
use buddy_core::ENTRY_BYTES;

static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("tight");
    let status = Command::new(std::env::var_os("CXX").unwrap_or("g++".into()))
        .args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-Wno-psabi"])
        .args(["-fsanitize=undefined", "-fno-sanitize-recover=all"])
        .args(buddy_cuda::constants().iter().map(|define| format!("-D{define}")))
        .args([concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tight.cpp"), "-o"])
        .arg(&program)
        .status();
    assert!(status.expect("a C++ compiler ($CXX or g++)").success(), "tight.cpp does not compile");
    program
});

/// Numbers without order, the same each time.
fn hash(i: u32) -> u32 {
    (i.wrapping_mul(0x9e37_79b9) ^ 0x5bd1_e995).rotate_left(13).wrapping_mul(0x85eb_ca6b)
}

/// Values with a few exponents; one of `odd` has any bits, and some rows are zeros.
fn matrix(rows: u32, row: u32, odd: u32) -> Vec<u8> {
    let value = |i: u32| {
        let (hash, at) = (hash(i), i / (64 * row));
        let usual = 110 + at % 3 + (hash >> 8 & 0xff).leading_zeros() - 24;
        match at % 13 {
            5 => 0,
            _ if hash >> 4 & 0xff < odd => (hash >> 16) as u16,
            _ => (hash & 0x807f | usual << 7) as u16,
        }
    };
    (0..rows * row * 64).flat_map(|i| value(i).to_le_bytes()).collect()
}

fn run(packed: &[u8], first: u32, list: &[u32]) -> Output {
    let header = *Tight::open(packed).unwrap().header();
    let parts = header.parts();
    let part = |range: Range<u64>| &packed[range.start as usize..range.end as usize];
    let all = [parts.columns, parts.flags, parts.index, parts.rows, parts.words].map(part);
    let head = [header.rows() as u32, header.row, header.words, first, list.len() as u32];
    let mut message: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
    message.extend(all.iter().flat_map(|part| (part.len() as u64).to_le_bytes()));
    message.extend(all.concat());
    message.extend(list.iter().flat_map(|entry| entry.to_le_bytes()));
    let mut child = Command::new(&*PROGRAM).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&message));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    output
}

#[test]
fn rows_and_entries_equal_the_reference() {
    for (rows, row, odd) in [(1, 1, 0), (40, 3, 2), (33, 8, 30), (16, 5, 256), (50, 2, 0)] {
        let data = matrix(rows, row, odd);
        let packed = tighten(row, &data).unwrap();
        assert_eq!(Tight::open(&packed).unwrap().read().unwrap(), data);
        let (first, entries) = (rows / 32 * 16, rows * row);
        let list: Vec<u32> = (0..50).map(|i| hash(i) % entries).chain([entries, u32::MAX, 0]).collect();
        let output = run(&packed, first, &list);
        assert!(output.status.success(), "{rows} rows of {row}");
        let (all, rest) = output.stdout.split_at(data.len());
        let (some, gathered) = rest.split_at(data.len() - (first * row) as usize * ENTRY_BYTES);
        assert!(all == data, "all of {rows} rows of {row}");
        assert!(some == &data[(first * row) as usize * ENTRY_BYTES..], "rows from {first} on");
        for (&entry, got) in list.iter().zip(gathered.chunks(ENTRY_BYTES)) {
            let at = entry as usize * ENTRY_BYTES;
            let wanted = data.get(at..at + ENTRY_BYTES).unwrap_or(&[0; ENTRY_BYTES]);
            assert!(got == wanted, "entry {entry} of {rows} rows of {row}");
        }
    }
}

/// The page behind each part cannot be read.
#[test]
fn damaged_matrices_are_read_within_their_bytes() {
    let data = matrix(40, 3, 20);
    let packed = tighten(3, &data).unwrap();
    let parts = Tight::open(&packed).unwrap().header().parts();
    for (round, range) in [parts.flags, parts.index, parts.rows, parts.words].into_iter().enumerate() {
        let mut damaged = packed.clone();
        for at in range.step_by(1 + round) {
            damaged[at as usize] = hash(at as u32) as u8;
        }
        assert!(run(&damaged, 16, &[0, 5, 119]).status.success());
    }
}
