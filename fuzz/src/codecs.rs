//! Decodes any bytes with any codec, giving an entry or an error; round-trips any entry.

use buddy_codec::{Codec, CodecKind, EntryCodec, Packed, Stream};
use buddy_core::{ENTRY_BYTES, Entry, Layout, Nibble};

/// Returns a codec, trained on an entry if the second byte is odd, and the remaining bytes.
fn codec(bytes: &[u8]) -> Option<(Codec, &[u8])> {
    let (&[kind, trained], rest) = bytes.split_first_chunk()?;
    let kind = CodecKind::EVERY[usize::from(kind) % CodecKind::EVERY.len()];
    if trained % 2 == 0 {
        return Some((kind.train(&[]), rest));
    }
    let (sample, rest) = rest.split_first_chunk::<ENTRY_BYTES>()?;
    Some((kind.train(&[*sample]), rest))
}

pub(crate) fn decode(bytes: &[u8]) {
    let Some((codec, rest)) = codec(bytes) else { return };
    let Some((nibble, rest)) = rest.split_first() else { return };
    let layout = [Layout::A, Layout::B, Layout::C][usize::from(*nibble) % 3];
    let _ = codec.decode(rest, layout);
    if let Ok(nibble) = Nibble::from_bits(nibble % 16) {
        let _ = codec.unpack(nibble, rest);
    }
}

pub(crate) fn round_trip(bytes: &[u8]) {
    let Some((codec, rest)) = codec(bytes) else { return };
    let mut entry: Entry = [0; ENTRY_BYTES];
    entry.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);

    let mut stream = Stream::default();
    codec.encode(&entry, &mut stream);
    assert_eq!(stream.bits(), codec.size_bits(&entry));
    assert!(stream.bits() <= codec.max_bits());
    assert_eq!(codec.decode(stream.bytes(), stream.layout()), Ok(entry));

    let mut packed = Packed::default();
    codec.pack(&entry, &mut packed);
    assert_eq!(packed.nibble().class(), codec.class(&entry));
    assert_eq!(codec.unpack(packed.nibble(), packed.bytes()), Ok(entry));
}
