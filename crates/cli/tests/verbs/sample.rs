//! Makes `examples/sample.bin`: a few entries of each kind of data that programs keep in GPU
//! memory.
//!
//! `BUDDY_WRITE_SAMPLE=1 cargo test -p buddy-cli --test sample` writes the file again; without the
//! variable the test proves that the committed file is the one made here. Only exact arithmetic is
//! used, so that every machine makes the same bytes.

use std::path::Path;

use buddy_codec::samples::Noise;
use buddy_core::ENTRY_BYTES;

#[test]
fn the_committed_sample_is_the_one_made_here() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/sample.bin");
    let sample = sample();
    if std::env::var_os("BUDDY_WRITE_SAMPLE").is_some() {
        std::fs::write(&path, &sample).unwrap();
    }
    assert!(std::fs::read(&path).unwrap() == sample, "examples/sample.bin differs: write it again");
}

fn sample() -> Vec<u8> {
    let mut noise = Noise(2020);
    let parts = [
        // Memory not written yet.
        values(2, |_| 0u64.to_le_bytes()),
        // One value everywhere.
        values(2, |_| 1.5f32.to_le_bytes()),
        // Thread numbers, and a table of addresses.
        values(2, |i| (1000 + 4 * i as u32).to_le_bytes()),
        values(2, |i| (0x7f3a_4000_0000 + 64 * i).to_le_bytes()),
        // The column numbers of a sparse matrix: sorted, with uneven gaps.
        values(4, |i| (7 * i as u32 + (noise.next() % 5) as u32).to_le_bytes()),
        // A mask of few ones.
        values(2, |_| u32::from(noise.next().is_multiple_of(16)).to_le_bytes()),
        // A smooth field in single precision, and one in double.
        values(4, |i| (100.0 + (i as f32 / 64.0) * (i as f32 / 64.0)).to_le_bytes()),
        values(4, |i| (1.0 + (i * i) as f64 / 4096.0).to_le_bytes()),
        // Weights of a network in 16 bits: random signs and fractions, few exponents.
        values(4, |_| (0x3c00 | noise.next() as u16 & 0x80ff).to_le_bytes()),
        // Text.
        b"An entry that compresses well lies in device memory; the rest of one that does not lies in its buddy. "
            .iter()
            .copied()
            .cycle()
            .take(2 * ENTRY_BYTES)
            .collect(),
        // Noise: nothing can be done, and nothing is lost.
        values(2, |_| noise.next().to_le_bytes()),
    ];
    parts.concat()
}

/// `entries` entries full of `N`-byte values.
fn values<const N: usize>(entries: u64, value: impl FnMut(u64) -> [u8; N]) -> Vec<u8> {
    (0..entries * (ENTRY_BYTES / N) as u64).flat_map(value).collect()
}
