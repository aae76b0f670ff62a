//! HDF5: checksums of chunk indexes, types of elements, and datasets that are skipped by name.
#![allow(missing_docs)]

mod files;

use std::path::Path;

use buddy_core::Dtype;
use buddy_snapshot::{Contents, Format, open, open_contents, read_memory};

/// A file that `tests/data/peers.py` made.
fn peer(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/peers").join(name)
}

#[test]
fn a_flipped_bit_in_a_chunk_index_is_refused() {
    let mut flips = 0;
    for name in ["fixed.h5", "extensible.h5", "pages.h5"] {
        let whole = std::fs::read(peer(name)).unwrap();
        for signature in [b"FADB", b"EAIB", b"EASB", b"EADB"] {
            let found = whole.windows(4).enumerate().filter(|(_, four)| four == signature);
            for at in found.map(|(at, _)| at).take(4) {
                for byte in (at..at + 40).step_by(3) {
                    let mut file = whole.clone();
                    file[byte] ^= 0x10;
                    let read = read_memory(Format::Hdf5, "x", file, None);
                    assert!(read.is_err(), "{name}: byte {} of {signature:?}", byte - at);
                    flips += 1;
                }
            }
        }
    }
    assert!(flips > 100, "{flips} flips");
}

#[test]
fn datasets_are_read_by_field_or_skipped_by_name() {
    let Contents { arrays, skipped } = open_contents(&peer("types.h5"), None).unwrap();
    let mut found: Vec<_> =
        arrays.iter().map(|array| (array.name.as_str(), array.dtype, &array.shape[..])).collect();
    found.sort_by_key(|&(name, ..)| name);
    let expected: [(&str, Dtype, &[u64]); 14] = [
        ("array", Dtype::U16, &[2, 2, 2]),
        ("big_complex", Dtype::C128, &[4]),
        ("bool", Dtype::Bool, &[3]),
        ("complex", Dtype::C64, &[4]),
        ("enum", Dtype::I16, &[2]),
        ("fill", Dtype::I32, &[5]),
        ("none", Dtype::F32, &[0, 3]),
        ("opaque", Dtype::U8, &[3, 8]),
        ("records.in.a", Dtype::U8, &[4]),
        ("records.in.ok", Dtype::Bool, &[4]),
        ("records.t", Dtype::F64, &[4]),
        ("records.v", Dtype::I16, &[4, 3]),
        ("scalar", Dtype::F64, &[]),
        ("", Dtype::U8, &[]),
    ];
    // One object has two names; the first that is met counts.
    found.iter_mut().filter(|(name, ..)| *name == "again").for_each(|(name, ..)| *name = "bool");
    found.sort_by_key(|&(name, ..)| name);
    assert_eq!(found, expected[..13]);
    let why = |name: &str| {
        let one =
            skipped.iter().find(|one| one.name == name).unwrap_or_else(|| panic!("{name}: {skipped:?}"));
        assert!(one.file.ends_with("types.h5"), "{}", one.file);
        one.why.clone()
    };
    for (name, part) in [
        ("empty", "null dataspace"),
        ("lzf", "LZF"),
        ("other", "another file, \"other.h5\""),
        ("records.name", "text"),
        ("text", "text"),
        ("texts", "text"),
        ("virtual", "virtual"),
    ] {
        assert!(why(name).contains(part), "{name}: {}", why(name));
    }
    assert_eq!(skipped.len(), 7, "{skipped:?}");
}

#[test]
fn integers_of_17_bits_have_their_value() {
    for array in open(&peer("bits.h5"), None).unwrap() {
        let numbers: Vec<i32> =
            array.bytes().as_chunks().0.iter().map(|&four| i32::from_le_bytes(four)).collect();
        assert_eq!(numbers, (-30..30).collect::<Vec<_>>(), "{}", array.name);
    }
}

#[test]
fn a_file_of_which_nothing_can_be_read_says_why() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/virtual.h5");
    let error = open(&data, None).unwrap_err().to_string();
    assert!(error.contains("\"d\" was skipped, since it is virtual"), "{error}");
}
