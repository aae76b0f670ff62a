//! Batches give the same results as single calls, on one thread and on many.

use buddy_codec::{CodecKind, EntryCodec, Packed, testing::samples};
use buddy_core::{Entry, Layout, Nibble, SizeClass, ZERO_ENTRY};

/// Enough entries for several parallel tasks.
fn many() -> Vec<Entry> {
    samples().into_iter().cycle().take(2500).collect()
}

#[test]
fn batches_equal_single_calls() {
    let entries = many();
    let zero = Nibble::new(SizeClass::Zero, Layout::A);
    for kind in CodecKind::EVERY {
        let codec = kind.train(&entries);
        let mut bits = vec![0; entries.len()];
        codec.sizes(&entries, &mut bits);

        let (mut nibbles, mut slots) = (vec![zero; entries.len()], vec![[0xee; 128]; entries.len()]);
        codec.pack_all(&entries, &mut nibbles, &mut slots);
        let mut packed = Packed::default();
        for (i, entry) in entries.iter().enumerate() {
            codec.pack(entry, &mut packed);
            assert_eq!((bits[i], nibbles[i]), (codec.size_bits(entry), packed.nibble()), "{kind} {i}");
            let bytes = packed.bytes().len();
            assert_eq!(&slots[i][..bytes], packed.bytes(), "{kind} {i}");
            assert!(slots[i][bytes..].iter().all(|&b| b == 0xee), "{kind} {i} wrote past its class");
        }

        let (mut other_nibbles, mut other_slots) = (nibbles.clone(), slots.clone());
        codec.pack_all_parallel(&entries, &mut other_nibbles, &mut other_slots);
        assert_eq!((&other_nibbles, &other_slots), (&nibbles, &slots));

        let mut back = vec![ZERO_ENTRY; entries.len()];
        codec.unpack_all(&nibbles, &slots, &mut back).unwrap();
        assert_eq!(back, entries);
    }
}

#[test]
fn an_invalid_entry_is_named() {
    let codec = CodecKind::Bpc.train(&[]);
    let mut nibbles = vec![Nibble::new(SizeClass::Zero, Layout::A); 2000];
    nibbles[1500] = Nibble::new(SizeClass::S3, Layout::C);
    let slots = vec![ZERO_ENTRY; nibbles.len()];
    let mut entries = slots.clone();
    let error = codec.unpack_all(&nibbles, &slots, &mut entries).unwrap_err();
    assert_eq!(error.to_string(), "entry 1500: layout C is not a layout of this codec");
}
