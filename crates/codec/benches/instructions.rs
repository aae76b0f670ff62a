//! Instructions of the hot loops, counted by callgrind: the same on a busy machine as on an idle one.
//!
//! `cargo bench -p buddy-codec` needs valgrind and `gungraun-runner` of the version in `Cargo.toml`. It fails where a
//! loop takes more instructions for an entry than stand here, about a tenth more than it took when that was written.
//! Callgrind knows no AVX-512, so these are the AVX2 loops.

#![allow(missing_docs, unreachable_pub)] // what the macros make

use std::hint::black_box;

use buddy_codec::{Codec, CodecKind, testing::samples};
use buddy_core::{Entry, Layout, Nibble, SizeClass, ZERO_ENTRY};
use gungraun::{
    Callgrind, EventKind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main,
};

/// Entries of a batch.
const ENTRIES: usize = 1024;

/// A codec, entries, and what it makes of them.
struct Batch {
    codec: Codec,
    entries: Vec<Entry>,
    nibbles: Vec<Nibble>,
    slots: Vec<Entry>,
    bits: Vec<u32>,
}

fn batch(kind: CodecKind) -> Batch {
    let entries: Vec<Entry> = samples().into_iter().cycle().take(ENTRIES).collect();
    let codec = kind.train(&entries);
    let mut nibbles = vec![Nibble::new(SizeClass::Zero, Layout::A); entries.len()];
    let mut slots = vec![ZERO_ENTRY; entries.len()];
    codec.pack_all(&entries, &mut nibbles, &mut slots);
    let bits = vec![0; entries.len()];
    Batch { codec, entries, nibbles, slots, bits }
}

/// Fails a loop that takes more instructions for an entry.
fn at_most(instructions: u64) -> LibraryBenchmarkConfig {
    let limit = instructions * ENTRIES as u64;
    LibraryBenchmarkConfig::default().tool(Callgrind::default().hard_limits([(EventKind::Ir, limit)])).clone()
}

#[library_benchmark(setup = batch)]
#[bench::bpc(args = (CodecKind::Bpc), config = at_most(340))]
#[bench::bf16(args = (CodecKind::Bf16), config = at_most(240))]
#[bench::planes64(args = (CodecKind::Planes64), config = at_most(45))]
#[bench::zeros32(args = (CodecKind::Zeros32), config = at_most(640))]
fn size(mut batch: Batch) -> Batch {
    batch.codec.sizes(black_box(&batch.entries), &mut batch.bits);
    batch
}

#[library_benchmark(setup = batch)]
#[bench::bpc(args = (CodecKind::Bpc), config = at_most(650))]
#[bench::bf16(args = (CodecKind::Bf16), config = at_most(1290))]
#[bench::planes64(args = (CodecKind::Planes64), config = at_most(850))]
#[bench::zeros32(args = (CodecKind::Zeros32), config = at_most(830))]
fn encode(mut batch: Batch) -> Batch {
    batch.codec.pack_all(black_box(&batch.entries), &mut batch.nibbles, &mut batch.slots);
    batch
}

#[library_benchmark(setup = batch)]
#[bench::bpc(args = (CodecKind::Bpc), config = at_most(460))]
#[bench::bf16(args = (CodecKind::Bf16), config = at_most(750))]
#[bench::planes64(args = (CodecKind::Planes64), config = at_most(1000))]
#[bench::zeros32(args = (CodecKind::Zeros32), config = at_most(360))]
fn decode(mut batch: Batch) -> Batch {
    batch
        .codec
        .unpack_all(black_box(&batch.nibbles), &batch.slots, &mut batch.entries)
        .expect("it was packed");
    batch
}

library_benchmark_group!(name = hot, benchmarks = [size, encode, decode]);
main!(library_benchmark_groups = hot);
