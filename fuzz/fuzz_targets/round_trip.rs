//! Any entry, written by any codec, comes back; its size is the length of its stream and within the bound.

#![no_main]

use buddy_codec::{CodecKind, EntryCodec, Packed, Stream};
use buddy_core::Entry;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, Entry, Option<Entry>)| {
    let (kind, entry, sample) = input;
    let codec = CodecKind::ALL[usize::from(kind) % CodecKind::ALL.len()].train(sample.as_slice());

    let mut stream = Stream::default();
    codec.encode(&entry, &mut stream);
    assert_eq!(stream.bits(), codec.size_bits(&entry));
    assert!(stream.bits() <= codec.max_bits());
    assert_eq!(codec.decode(stream.bytes(), stream.layout()), Ok(entry));

    let mut packed = Packed::default();
    codec.pack(&entry, &mut packed);
    assert_eq!(packed.nibble().class(), codec.class(&entry));
    assert_eq!(codec.unpack(packed.nibble(), packed.bytes()), Ok(entry));
});
