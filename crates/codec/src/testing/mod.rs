//! The contract of every codec, and data to test it on. Public under the feature `testing`, for the
//! tests of other implementations and crates.
//!
//! [`contract`] tests an [`EntryCodec`]; [`storage`] tests a [`Codec`], which also packs; [`twins`]
//! compares a fast implementation with its reference bit for bit.

mod strategies;

use buddy_core::{ENTRY_BYTES, Entry, Layout, Nibble, SizeClass, ZERO_ENTRY, is_zero};

pub use strategies::{entries, floats, mixed, noise, pointers, ramps, repeated, sparse};

pub use crate::samples::samples;
use crate::{Codec, EntryCodec, Error, Packed, STREAM_BYTES, Stream};

const LAYOUTS: [Layout; 3] = [Layout::A, Layout::B, Layout::C];

/// Creates an entry from the bytes of its values.
///
/// # Panics
/// If the values do not add up to 128 bytes.
pub fn entry_of<const N: usize>(values: impl AsRef<[[u8; N]]>) -> Entry {
    values.as_ref().as_flattened().try_into().expect("an entry has 128 bytes")
}

/// Parses hex digits; an odd last digit is the high half of a byte.
///
/// # Panics
/// If a character is not a hex digit.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().map(|digit| digit.to_digit(16).expect("a hex digit") as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair.get(1).unwrap_or(&0)).collect()
}

/// Returns the bits and bytes of an entry's stream.
pub fn stream_of(codec: &impl EntryCodec, entry: &Entry) -> (u32, Vec<u8>) {
    let mut stream = Stream::default();
    codec.encode(entry, &mut stream);
    (stream.bits(), stream.bytes().to_vec())
}

/// Tests an implementation on `entries` and on zeros: round trip, size equals length, bound, and an
/// entry or an error for every truncation and every single bit flip.
///
/// # Panics
/// If the contract is violated.
pub fn contract(codec: &impl EntryCodec, entries: &[Entry]) {
    let mut stream = Stream::default();
    for entry in entries.iter().chain([&ZERO_ENTRY]) {
        round_trip(codec, entry, &mut stream);
        truncations(codec, &stream);
        bit_flips(stream.bytes(), |bytes| {
            let _ = LAYOUTS.map(|layout| codec.decode(bytes, layout));
        });
    }
}

/// Tests that the entry round-trips, with and without padding; that size equals length and is
/// within the bound; and that unused bits of the last byte are zero.
///
/// # Panics
/// If one of these does not hold.
pub fn round_trip(codec: &impl EntryCodec, entry: &Entry, stream: &mut Stream) {
    codec.encode(entry, stream);
    let (bits, bytes) = (stream.bits(), stream.bytes());
    assert_eq!(codec.size_bits(entry), bits, "size and length differ for {entry:02x?}");
    assert!(bits <= codec.max_bits(), "{bits} bits are over the bound for {entry:02x?}");
    assert!(codec.max_bits() as usize <= 8 * STREAM_BYTES);
    assert_eq!(bytes.len(), bits.div_ceil(8) as usize);
    let unused = bytes.len() as u32 * 8 - bits;
    assert!(
        bytes.last().is_none_or(|last| last.trailing_zeros().max(last.leading_zeros()) >= unused),
        "unused bits are set"
    );
    assert_eq!(codec.decode(bytes, stream.layout()).as_ref(), Ok(entry));
    let padded = [bytes, &[0xa5; 16]].concat();
    assert_eq!(codec.decode(&padded, stream.layout()).as_ref(), Ok(entry), "padding was read");
}

/// Tests that truncated streams are errors in their own layout, and entries or errors in the
/// others.
fn truncations(codec: &impl EntryCodec, stream: &Stream) {
    for len in 0..stream.bytes().len() {
        for layout in LAYOUTS {
            let cut = codec.decode(&stream.bytes()[..len], layout);
            assert!(
                layout != stream.layout() || cut.is_err(),
                "{len} of {} bytes decoded",
                stream.bytes().len()
            );
        }
    }
}

/// Calls `look` with each single bit of `bytes` flipped.
fn bit_flips(bytes: &[u8], mut look: impl FnMut(&[u8])) {
    let mut bytes = bytes.to_vec();
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        look(&bytes);
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

/// Tests a codec's packing on `entries` and on zeros: the entry round-trips; the class gives the
/// length; fewer bytes are an error; any nibble with any single bit flip is an entry or an error.
///
/// # Panics
/// If the contract is violated.
pub fn storage(codec: &Codec, entries: &[Entry]) {
    let mut packed = Packed::default();
    for entry in entries.iter().chain([&ZERO_ENTRY]) {
        pack_round_trip(codec, entry, &mut packed);
        let (nibble, bytes) = (packed.nibble(), packed.bytes());
        for len in 0..bytes.len() {
            let short = Error::Short { class: nibble.class(), found: len };
            assert_eq!(codec.unpack(nibble, &bytes[..len]), Err(short));
        }
        // Any nibble can read the bytes of the largest class.
        let mut room = ZERO_ENTRY;
        room[..bytes.len()].copy_from_slice(bytes);
        bit_flips(&room, |bytes| nibbles().for_each(|nibble| drop(codec.unpack(nibble, bytes))));
    }
}

/// Returns every valid nibble.
fn nibbles() -> impl Iterator<Item = Nibble> {
    (0..16).filter_map(|bits| Nibble::from_bits(bits).ok())
}

/// Tests that a packed entry round-trips and has the class of its size.
///
/// # Panics
/// If it does not.
pub fn pack_round_trip(codec: &Codec, entry: &Entry, packed: &mut Packed) {
    codec.pack(entry, packed);
    let class = packed.nibble().class();
    let bits = codec.size_bits(entry);
    assert_eq!(class, codec.class(entry));
    assert_eq!(class == SizeClass::Zero, is_zero(entry));
    assert!(class == SizeClass::Raw || is_zero(entry) || bits as usize <= 8 * class.bytes());
    assert!(class != SizeClass::Raw || (bits > 768 && packed.bytes() == entry));
    assert_eq!(packed.bytes().len(), class.bytes());
    assert_eq!(codec.unpack(packed.nibble(), packed.bytes()).as_ref(), Ok(entry));
    let padded = [packed.bytes(), &[0x5a; ENTRY_BYTES]].concat();
    assert_eq!(codec.unpack(packed.nibble(), &padded).as_ref(), Ok(entry), "bytes past the class were read");
}

/// Tests that two implementations write the same streams, and decode valid and invalid streams
/// alike.
///
/// # Panics
/// If any result differs.
pub fn twins(reference: &impl EntryCodec, other: &impl EntryCodec, entries: &[Entry]) {
    let (mut ours, mut theirs) = (Stream::default(), Stream::default());
    for entry in entries.iter().chain([&ZERO_ENTRY]) {
        reference.encode(entry, &mut ours);
        other.encode(entry, &mut theirs);
        assert_eq!(reference.size_bits(entry), other.size_bits(entry), "{entry:02x?}");
        assert_eq!((ours.bits(), ours.layout()), (theirs.bits(), theirs.layout()), "{entry:02x?}");
        assert_eq!(ours.bytes(), theirs.bytes(), "{entry:02x?}");
        let same = |bytes: &[u8]| {
            for layout in LAYOUTS {
                assert_eq!(reference.decode(bytes, layout).ok(), other.decode(bytes, layout).ok());
            }
        };
        same(ours.bytes());
        bit_flips(ours.bytes(), same);
    }
}
