//! Zarr stores that Zarr's own package wrote (`tests/data/stores.py`), and damaged ones.
#![allow(missing_docs)]

use std::{
    collections::BTreeMap,
    fs,
    io::Cursor,
    path::{Path, PathBuf},
};

use buddy_core::Dtype;
use buddy_snapshot::{Array, Contents, Run, array_files_and_left, open_contents};
use proptest::{prelude::*, test_runner::TestRunner};
use tempfile::TempDir;
use zip::ZipArchive;

/// Extracts the stores.
fn stores() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let zip = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/stores.zip")).unwrap();
    ZipArchive::new(Cursor::new(zip)).unwrap().extract(dir.path()).unwrap();
    dir
}

fn read(path: PathBuf) -> (BTreeMap<String, Array>, BTreeMap<String, String>) {
    let Contents { arrays, skipped } = open_contents(&path, None).unwrap();
    let arrays = arrays.into_iter().map(|array| (array.name.clone(), array)).collect();
    (arrays, skipped.into_iter().map(|one| (one.name, one.why)).collect())
}

/// Returns the bytes of 0, 1, 2, ... in a type.
fn ramp(dtype: Dtype, count: usize) -> Vec<u8> {
    let number = |at: usize| match dtype {
        Dtype::U8 => vec![at as u8],
        Dtype::I16 | Dtype::U16 => (at as u16).to_le_bytes().to_vec(),
        Dtype::I32 | Dtype::U32 => (at as u32).to_le_bytes().to_vec(),
        Dtype::I64 => (at as u64).to_le_bytes().to_vec(),
        Dtype::F32 => (at as f32).to_le_bytes().to_vec(),
        Dtype::F64 => (at as f64).to_le_bytes().to_vec(),
        Dtype::C64 => [(at as f32).to_le_bytes(), [0; 4]].concat(),
        other => panic!("{other}"),
    };
    (0..count).flat_map(number).collect()
}

/// Checks that an array is the ramp, in rows.
fn is_ramp(array: &Array, dtype: Dtype, shape: &[u64]) {
    assert_eq!((array.dtype, &array.shape[..]), (dtype, shape), "{}", array.name);
    let count = shape.iter().product::<u64>() as usize;
    assert!(array.bytes() == ramp(dtype, count), "{}: other values", array.name);
}

const SHAPE: [u64; 3] = [7, 10, 6];

#[test]
fn arrays_of_version_2_have_their_values() {
    let dir = stores();
    let (arrays, skipped) = read(dir.path().join("second.zarr"));
    for name in
        ["plain", "zlib", "gzip", "zstd", "lz4", "blosc_lz4", "blosc_lz4hc", "blosc_zstd", "blosc_zlib"]
    {
        is_ramp(&arrays[name], Dtype::F64, &SHAPE);
    }
    is_ramp(&arrays["columns"], Dtype::I32, &SHAPE);
    is_ramp(&arrays["big"], Dtype::I16, &SHAPE);
    is_ramp(&arrays["complex"], Dtype::C64, &SHAPE);
    is_ramp(&arrays["group/below/nested"], Dtype::I64, &SHAPE);
    is_ramp(&arrays["long"], Dtype::U32, &[70001]);
    is_ramp(&arrays["long_bits"], Dtype::U32, &[70001]);
    assert_eq!(arrays["scalar"].bytes(), 7f64.to_le_bytes());
    let numbers = ramp(Dtype::F32, 420);
    let inside = |at: usize| (3..6).contains(&(at / 60)) && (4..8).contains(&(at / 6 % 10));
    for (at, found) in arrays["partly"].bytes().chunks(4).enumerate() {
        let expected = if inside(at) { &numbers[4 * at..][..4] } else { &(-1.5f32).to_le_bytes()[..] };
        assert_eq!(found, expected, "{at}");
    }
    let why: Vec<(&str, &str)> = skipped.iter().map(|(name, why)| (name.as_str(), why.as_str())).collect();
    assert_eq!(why.len(), 4, "{why:?}");
    assert_eq!(skipped["blosc_blosclz"], "its chunks are packed with Blosc with BloscLZ");
    assert_eq!(skipped["bz2"], "its chunks are packed with bz2");
    assert_eq!(skipped["filtered"], "its chunks have the filter delta");
    assert!(skipped["text"].starts_with("its elements are "), "{why:?}");
    assert_eq!(arrays.len(), 17);
}

#[test]
fn arrays_of_version_3_have_their_values() {
    let dir = stores();
    let (arrays, skipped) = read(dir.path().join("third.zarr"));
    for (name, dtype) in [
        ("usual", Dtype::F64),
        ("gzip", Dtype::F32),
        ("zstd", Dtype::F32),
        ("sum", Dtype::U16),
        ("blosc", Dtype::I32),
        ("turned", Dtype::I32),
        ("big", Dtype::F64),
    ] {
        is_ramp(&arrays[name], dtype, &SHAPE);
    }
    for name in ["dots", "older"] {
        is_ramp(&arrays[name], Dtype::U8, &SHAPE);
    }
    assert_eq!(arrays["scalar"].bytes(), 7f64.to_le_bytes());
    let numbers: Vec<f32> = arrays["missing"]
        .bytes()
        .chunks(4)
        .map(|four| f32::from_le_bytes(four.try_into().unwrap()))
        .collect();
    for (at, number) in numbers.iter().enumerate() {
        match at / 60 < 3 && at / 6 % 10 < 4 {
            true => assert_eq!(*number, at as f32),
            false => assert!(number.is_nan(), "{at}"),
        }
    }
    assert_eq!(skipped, BTreeMap::from([("shards".to_owned(), "its chunks lie in shards".to_owned())]));
    assert_eq!(arrays.len(), 11);
    let (alone, skipped) = read(dir.path().join("alone.zarr"));
    is_ramp(&alone["alone"], Dtype::F64, &[5]);
    assert!(alone.len() == 1 && skipped.is_empty());
}

/// A store is one path of `analyze`, one snapshot of `profile`, and a folder in a folder is named.
#[test]
fn a_store_is_a_path_and_a_snapshot() {
    let dir = stores();
    let store = dir.path().join("third.zarr");
    assert_eq!(array_files_and_left(&store).unwrap(), (vec![store.clone()], vec![]));
    let run = Run::open(&store).unwrap();
    assert_eq!((run.info().snapshots.len(), run.info().allocations.len()), (1, 11));
    assert!(run.info().skipped.iter().any(|one| one.why == "its chunks lie in shards"));
    fs::write(dir.path().join("a.f32"), [0; 64]).unwrap();
    let left = array_files_and_left(dir.path()).unwrap().1;
    assert_eq!(left.len(), 3);
    assert!(left[0].name.ends_with("alone.zarr") && left[0].why.contains("give it by name"), "{left:?}");
}

/// Writes an array of version 2 with these chunks.
fn array(metadata: &str, chunks: &[(&str, &[u8])]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(".zarray"), metadata).unwrap();
    for (key, bytes) in chunks {
        fs::write(dir.path().join(key), bytes).unwrap();
    }
    dir
}

fn metadata(shape: &str, chunks: &str, compressor: &str) -> String {
    format!(
        r#"{{"zarr_format": 2, "shape": {shape}, "chunks": {chunks}, "dtype": "<f8", "compressor": {compressor},
            "fill_value": 0, "order": "C", "filters": null}}"#
    )
}

#[test]
fn hostile_stores_are_errors_and_take_little_memory() {
    let error = |dir: &TempDir| match open_contents(dir.path(), None) {
        Err(error) => error.to_string(),
        Ok(found) => panic!("{} arrays", found.arrays.len()),
    };
    let short = error(&array(&metadata("[4]", "[4]", "null"), &[("0", &[0; 24])]));
    assert!(short.contains("0: not a valid Zarr file: it has 24 bytes instead of 32"), "{short}");
    let long = error(&array(&metadata("[4]", "[4]", "null"), &[("0", &[0; 70_000])]));
    assert!(long.contains("longer than a chunk of 32 bytes can be"), "{long}");
    let huge = error(&array(&metadata("[1000000000000]", "[4]", "null"), &[("0", &[0; 32])]));
    assert!(huge.contains("over the limit of"), "{huge}");
    let absurd =
        error(&array(&metadata("[9223372036854775807, 9223372036854775807]", "[4, 4]", "null"), &[]));
    assert!(absurd.contains("larger than any file can be"), "{absurd}");
    let chunk = error(&array(&metadata("[1]", "[100000000]", "null"), &[]));
    assert!(chunk.contains("its chunks have more than 256 MiB"), "{chunk}");
    let zero = error(&array(&metadata("[4]", "[0]", "null"), &[]));
    assert!(zero.contains("chunks of [0] in an array of [4]"), "{zero}");
    // A kilobyte that decodes to more than the chunk has.
    let bomb = zstd_of(10 << 20);
    let more = error(&array(&metadata("[4]", "[4]", r#"{"id": "zstd"}"#), &[("0", &bomb)]));
    assert!(bomb.len() < 10_000 && more.contains("decodes to more than"), "{more}");
    assert!(error(&array("{", &[])).contains("not a valid Zarr file"));
    assert!(error(&array("{}", &[])).contains("zarr_format is null"));
}

fn zstd_of(zeros: usize) -> Vec<u8> {
    zstd::bulk::compress(&vec![0; zeros], 3).unwrap()
}

/// Files that are no chunks, and chunks that a smaller array no longer has, are left.
#[test]
fn only_chunks_of_the_grid_are_read() {
    let one = 1f64.to_le_bytes();
    let others: [(&str, &[u8]); 5] =
        [("0", &one), ("1", &[9; 3]), ("00", &[9; 3]), ("0.0", &[9; 3]), ("README", b"x")];
    let dir = array(&metadata("[1]", "[1]", "null"), &others);
    let found = open_contents(dir.path(), None).unwrap();
    assert_eq!(found.arrays[0].bytes(), one);
}

/// A store with changed bytes gives an error of one line, or arrays of the sizes that they state.
#[test]
fn changed_bytes_never_panic() {
    let dir = stores();
    let stores = ["second.zarr", "third.zarr"].map(|store| dir.path().join(store));
    let mut files = Vec::new();
    stores.iter().for_each(|store| list(store, &mut files));
    let change = (0..files.len(), 0.0..1.0, any::<u8>(), any::<bool>());
    let mut runner = TestRunner::new(ProptestConfig { cases: 48, ..ProptestConfig::default() });
    let outcome = runner.run(&prop::collection::vec(change, 1..6), |changes| {
        let mut before = Vec::new();
        for (file, at, byte, cut) in changes {
            let path = &files[file];
            let mut bytes = fs::read(path).unwrap();
            before.push((path, bytes.clone()));
            let at = (at * bytes.len() as f64) as usize;
            if cut {
                bytes.truncate(at);
            } else if let Some(changed) = bytes.get_mut(at) {
                *changed = byte;
            }
            fs::write(path, bytes).unwrap();
        }
        let found = stores.each_ref().map(|store| open_contents(store, None));
        // A file that was changed twice is restored to what it was first.
        before.into_iter().rev().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
        for found in found {
            match found {
                Err(error) => prop_assert!(!error.to_string().contains('\n'), "{}", error),
                Ok(found) => {
                    for array in found.arrays {
                        let bytes = array.shape.iter().product::<u64>() * array.dtype.bytes() as u64;
                        prop_assert_eq!(array.bytes().len() as u64, bytes);
                    }
                }
            }
        }
        Ok(())
    });
    outcome.unwrap();
}

fn list(dir: &Path, files: &mut Vec<PathBuf>) {
    let mut paths: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() { list(&path, files) } else { files.push(path) }
    }
}
