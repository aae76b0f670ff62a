//! The contract that every codec keeps, and the data it is kept on. Public under the feature `testing`, for the
//! suites of later implementations.

use buddy_core::{ENTRY_BYTES, Entry, Layout, ZERO_ENTRY, is_zero};

use crate::{EntryCodec, STREAM_BYTES, Stream};

/// Entries of every kind that programs hold: zeros, ramps, floats, pointers, sparse, noise. The same each time.
pub fn samples() -> Vec<Entry> {
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    let mut entries = vec![ZERO_ENTRY, [0xff; ENTRY_BYTES], [0x80; ENTRY_BYTES]];
    for round in 0..8u64 {
        let (base, step) = (noise.next(), noise.next() >> (8 * round).min(56));
        let smooth = |i: u64| (0.3 * (i + 64 * round) as f64).sin();
        entries
            .push(fill(|i| (base as u32).wrapping_add((step as u32).wrapping_mul(i as u32)).to_le_bytes()));
        entries.push(fill(|i| base.wrapping_add(step.wrapping_mul(i)).to_le_bytes()));
        entries.push(fill(|i| smooth(i).to_le_bytes()));
        entries.push(fill(|i| (smooth(i) as f32).to_le_bytes()));
        entries.push(fill(|i| (((smooth(i) as f32).to_bits() >> 16) as u16).to_le_bytes()));
        entries.push(fill(|i| (0x7f00_0000_0000 + ((i * 64) << round)).to_le_bytes()));
        entries.push(fill(|_| noise.next().to_le_bytes()));
        let sparse = noise.next() & noise.next();
        entries.push(fill(|i| (if sparse >> i & 1 == 1 { noise.next() as u32 } else { 0 }).to_le_bytes()));
        let mut one = ZERO_ENTRY;
        one[noise.next() as usize % ENTRY_BYTES] = 1 << round;
        entries.push(one);
    }
    entries
}

/// An entry of `N`-byte values.
fn fill<const N: usize>(mut value: impl FnMut(u64) -> [u8; N]) -> Entry {
    let mut entry = ZERO_ENTRY;
    for (i, slot) in entry.as_chunks_mut::<N>().0.iter_mut().enumerate() {
        *slot = value(i as u64);
    }
    entry
}

/// A xorshift generator: good enough for bytes, and the same everywhere.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Everything a codec promises, on each of `entries`.
///
/// # Panics
/// If a promise is broken.
pub fn contract(codec: &impl EntryCodec, entries: &[Entry]) {
    let mut stream = Stream::default();
    for entry in entries.iter().chain([&ZERO_ENTRY]) {
        round_trip(codec, entry, &mut stream);
        truncations(codec, &stream);
        bit_flips(codec, &stream);
    }
}

/// The entry comes back from its stream, and from its stream with padding; size equals length; the bound holds.
///
/// # Panics
/// If one of these does not hold.
pub fn round_trip(codec: &impl EntryCodec, entry: &Entry, stream: &mut Stream) {
    codec.encode(entry, stream);
    assert_eq!(codec.size_bits(entry), stream.bits(), "size and length differ for {entry:02x?}");
    assert!(stream.bytes().len() <= STREAM_BYTES);
    assert!(!is_zero(entry) || stream.bits() <= 256, "zeros take {} bits", stream.bits());
    assert_eq!(codec.decode(stream.bytes(), stream.layout()).as_ref(), Ok(entry));
    let padded = [stream.bytes(), &[0xa5; 16]].concat();
    assert_eq!(codec.decode(&padded, stream.layout()).as_ref(), Ok(entry), "padding was read");
}

/// Every shorter stream is an error or an entry, under every layout; without its last bits it is never the
/// right answer by luck of reading past the end.
fn truncations(codec: &impl EntryCodec, stream: &Stream) {
    for len in 0..stream.bytes().len() {
        for layout in [Layout::A, Layout::B, Layout::C] {
            let _ = codec.decode(&stream.bytes()[..len], layout);
        }
        let cut = codec.decode(&stream.bytes()[..len], stream.layout());
        assert!(cut.is_err(), "{len} of {} bytes decoded", stream.bytes().len());
    }
}

/// Every stream with one bit changed is an error or an entry.
fn bit_flips(codec: &impl EntryCodec, stream: &Stream) {
    let mut bytes = stream.bytes().to_vec();
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        for layout in [Layout::A, Layout::B, Layout::C] {
            let _ = codec.decode(&bytes, layout);
        }
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

/// Two implementations of one codec agree on everything: sizes, streams, and what they say of damaged streams.
///
/// # Panics
/// If they differ.
pub fn twins(fast: &impl EntryCodec, reference: &impl EntryCodec, entries: &[Entry]) {
    let (mut stream, mut expected) = (Stream::default(), Stream::default());
    for entry in entries {
        reference.encode(entry, &mut expected);
        fast.encode(entry, &mut stream);
        assert_eq!(fast.size_bits(entry), expected.bits(), "{entry:02x?}");
        assert_eq!((stream.bits(), stream.bytes()), (expected.bits(), expected.bytes()), "{entry:02x?}");
        assert_eq!(stream.layout(), expected.layout());
        let mut bytes = expected.bytes().to_vec();
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(fast.decode(&bytes, stream.layout()), reference.decode(&bytes, stream.layout()));
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        for len in 0..bytes.len() {
            let bytes = &bytes[..len];
            assert_eq!(fast.decode(bytes, stream.layout()), reference.decode(bytes, stream.layout()));
        }
    }
}
