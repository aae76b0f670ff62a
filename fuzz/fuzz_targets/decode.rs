//! Any bytes, read by any codec under any layout or nibble, are an entry or an error: never a panic.

#![no_main]

use buddy_codec::{CodecKind, EntryCodec};
use buddy_core::{Entry, Layout, Nibble};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u8, Option<Entry>, &[u8])| {
    let (kind, nibble, sample, bytes) = input;
    let codec = CodecKind::ALL[usize::from(kind) % CodecKind::ALL.len()].train(sample.as_slice());
    let layout = [Layout::A, Layout::B, Layout::C][usize::from(nibble) % 3];
    let _ = codec.decode(bytes, layout);
    if let Ok(nibble) = Nibble::from_bits(nibble % 16) {
        let _ = codec.unpack(nibble, bytes);
    }
});
