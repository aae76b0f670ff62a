//! Hostile containers: small files that claim far more than they hold.
#![allow(missing_docs)]

mod files;

use std::path::Path;

use buddy_snapshot::{Format, open, read_memory};
use zip::CompressionMethod;

fn why(format: Format, file: Vec<u8>) -> String {
    read_memory(format, "x", file, None).unwrap_err().to_string()
}

/// A GGUF file of tensors with this shape and type, all of them at the beginning of 64 bytes.
fn gguf(tensors: u64, elements: u64, kind: u32) -> Vec<u8> {
    let mut file = b"GGUF".to_vec();
    file.extend(3u32.to_le_bytes());
    file.extend([tensors, 0].map(u64::to_le_bytes).concat());
    for name in 0..tensors {
        file.extend([8, name].map(u64::to_le_bytes).concat());
        file.extend(1u32.to_le_bytes());
        file.extend(elements.to_le_bytes());
        file.extend(kind.to_le_bytes());
        file.extend(0u64.to_le_bytes());
    }
    file.resize(file.len().next_multiple_of(32) + 64, 7);
    file
}

#[test]
fn tensors_of_gguf_lie_beside_one_another() {
    assert_eq!(read_memory(Format::Gguf, "x", gguf(1, 16, 0), None).unwrap()[0].bytes(), [7; 64]);
    assert!(why(Format::Gguf, gguf(100, 1000, 24)).contains("past the end"));
    let mut file = gguf(100, 1000, 24);
    file.resize(file.len() + 1000, 7);
    assert!(why(Format::Gguf, file).contains("over one another"));
}

#[test]
fn two_tensors_of_gguf_with_one_name_are_refused() {
    let mut file = gguf(2, 8, 0);
    // The second name becomes that of the first, and its bytes follow those of the first.
    let record = 8 + 8 + 4 + 8 + 4 + 8;
    let second = 24 + record;
    file[second + 8..second + 16].fill(0);
    file[second + record - 8..second + record].copy_from_slice(&32u64.to_le_bytes());
    let found = why(Format::Gguf, file.clone());
    assert!(found.contains("twice"), "{found}");
    file[second + 8] = 1;
    assert_eq!(read_memory(Format::Gguf, "x", file, None).unwrap().len(), 2, "with another name");
}

#[test]
fn blocks_of_gguf_that_wrap_around_are_refused() {
    // 2^64 - 32 elements in blocks of 32 that take 36 bytes.
    assert!(why(Format::Gguf, gguf(1, u64::MAX - 31, 9)).contains("absurd"));
}

fn torch(pickle: Vec<u8>) -> Vec<u8> {
    files::npz(&[("a/data.pkl", pickle), ("a/data/0", vec![0; 64])], CompressionMethod::Stored)
}

/// Wraps the top of the stack in `depth` tuples.
fn nested(inner: &[u8], depth: usize) -> Vec<u8> {
    [b"\x80\x02", inner, &vec![0x85; depth], b"."].concat()
}

#[test]
fn objects_in_objects_cost_no_more_than_their_bytes() {
    // A list of 200,000 references, 50,000 tuples deep: 20 GB if each had its own name.
    let list = [&b"Nq\x00("[..], &b"h\x00".repeat(200_000), b"t"].concat();
    assert!(why(Format::Torch, torch(nested(&list, 50_000))).contains("no arrays"));
    assert!(why(Format::Torch, torch(nested(b"N", 1_000_000))).contains("far more objects"));
}

#[test]
fn a_tensor_whose_name_has_no_end_is_refused() {
    let tensor = b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000\
        X\x03\x00\x00\x00cpuK\x10tQK\x00K\x10\x85K\x01\x85tR";
    let arrays = read_memory(Format::Torch, "x", torch(nested(tensor, 3)), None).unwrap();
    assert_eq!((arrays[0].name.as_str(), &arrays[0].shape[..]), ("0.0.0", &[16][..]));
    assert!(why(Format::Torch, torch(nested(tensor, 100_000))).contains("more than 4096 bytes"));
}

#[test]
fn a_storage_of_pytorch_that_is_shorter_than_its_tensor_is_refused() {
    let tensor = |storage: u8, elements: u8| {
        let mut code = b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000\
            X\x03\x00\x00\x00cpuK"
            .to_vec();
        code.extend([storage, b't', b'Q', b'K', 0, b'K', elements, 0x85, b'K', 1, 0x85, b't', b'R']);
        torch(nested(&code, 1))
    };
    // The file holds 64 bytes: sixteen numbers.
    assert_eq!(read_memory(Format::Torch, "x", tensor(16, 16), None).unwrap()[0].shape, [16]);
    for (storage, elements) in [(17, 17), (16, 17), (1, 200)] {
        let found = why(Format::Torch, tensor(storage, elements));
        assert!(found.contains("storage"), "{storage} of {elements}: {found}");
    }
}

#[test]
fn a_storage_of_pytorch_that_was_damaged_is_refused() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/state.pt");
    let mut file = std::fs::read(here).unwrap();
    let number = 2.0f32.to_le_bytes();
    let at = file.windows(4).rposition(|bytes| bytes == number).unwrap();
    file[at] ^= 1;
    assert!(why(Format::Torch, file).contains("checksum"));
}

#[test]
fn links_of_hdf5_that_lead_back_or_double_are_followed_once() {
    // 28 groups, each with two links to the next, and a cycle: 2^28 paths.
    let arrays = open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/links.h5"), None).unwrap();
    assert_eq!(arrays.len(), 1);
    assert_eq!(arrays[0].shape, [5]);
}
