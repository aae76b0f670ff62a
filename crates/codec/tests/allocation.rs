//! Decoders never allocate, so an invalid stream cannot exhaust memory.
//!
//! Runs without the test harness, whose threads allocate.

use std::hint::black_box;

use buddy_codec::{
    Codec, CodecKind, EntryCodec,
    testing::{samples, stream_of},
};
use buddy_core::{Layout, Nibble};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

fn main() {
    let samples = samples();
    let mut streams: Vec<_> = CodecKind::EVERY
        .map(|kind| kind.train(&samples))
        .into_iter()
        .flat_map(|codec| samples.iter().map(move |entry| (codec.clone(), stream_of(&codec, entry).1)))
        .collect();
    let profiler = dhat::Profiler::builder().testing().build();
    for (codec, bytes) in &mut streams {
        faults(codec, bytes);
    }
    let decoding = dhat::HeapStats::get().total_blocks;
    black_box(vec![0u8; 100]);
    let and_a_vector = dhat::HeapStats::get().total_blocks;
    drop(profiler);
    assert_eq!((decoding, and_a_vector), (0, 1), "blocks allocated");
}

/// Decodes the stream with each single bit flipped, complete and truncated, under every nibble.
fn faults(codec: &Codec, bytes: &mut [u8]) {
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        for bytes in [&bytes[..], &bytes[..bit / 8]] {
            let _ = black_box(codec.decode(bytes, Layout::A));
            let nibble = Nibble::from_bits(bit as u8 % 8).expect("valid below 8");
            let _ = black_box(codec.unpack(nibble, bytes));
        }
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}
