//! Files and folders on disk, as the command reads them: format detection, mapping, packing.

use std::{fs, path::PathBuf, sync::LazyLock};

use buddy_model::{Job, pack, unpack, verify};
use buddy_snapshot::{Run, array_files_and_left, open_contents};

static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("buddy-fuzz-folder-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a temporary folder");
    folder
});

/// Names of the file that is opened; most are detected by their first bytes.
const NAMES: [&str; 12] = [
    "x",
    "x.dat",
    "x.npy",
    "x.npz",
    "x.safetensors",
    "x.h5",
    "x.nc",
    "x.gguf",
    "x.pt",
    "x.bin",
    "x.f32",
    "x.json",
];

/// Names of files in a folder.
const FILES: [&str; 8] = [
    "model.safetensors",
    "model-1.safetensors",
    "model.safetensors.index.json",
    "config.json",
    "buddy.json",
    "rho_00.f32",
    "rho_01.f32",
    "fields.h5",
];

/// Writes all bytes but the last to a file that the last one names, and opens it.
pub(crate) fn open(bytes: &[u8]) {
    let Some((&name, content)) = bytes.split_last() else { return };
    let path = FOLDER.join(NAMES[usize::from(name) % NAMES.len()]);
    fs::write(&path, content).expect("a temporary file");
    match open_contents(&path, None) {
        Ok(contents) => {
            for array in &contents.arrays {
                let elements: u64 = array.shape.iter().product();
                assert_eq!(array.bytes().len() as u64, elements * array.dtype.bytes() as u64);
                // Touches every page of the mapping.
                std::hint::black_box(array.bytes().iter().step_by(4096).fold(0, |sum: u8, byte| sum ^ byte));
                array.release(0..array.bytes().len());
            }
        }
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
    fs::remove_file(&path).expect("the file is there");
}

/// Fills a folder with files (name, length of 16 bits, content) and uses it as a run, as a model to pack, and
/// as a packed model.
pub(crate) fn model(mut bytes: &[u8]) {
    let (from, packed, plain) = (FOLDER.join("from"), FOLDER.join("packed"), FOLDER.join("plain"));
    for folder in [&from, &packed, &plain] {
        let _ = fs::remove_dir_all(folder);
    }
    fs::create_dir_all(&from).expect("a temporary folder");
    while let [name, low, high, rest @ ..] = bytes {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        let (content, rest) = rest.split_at(length);
        fs::write(from.join(FILES[usize::from(*name) % FILES.len()]), content).expect("a temporary file");
        bytes = rest;
    }
    let _ = Run::open(&from);
    let _ = array_files_and_left(&from);
    let _ = unpack(&Job { from: &from, to: &plain, verify: false }, &|_| ());
    let _ = fs::remove_dir_all(&plain);
    if pack(&Job { from: &from, to: &packed, verify: false }, &|_| ()).is_ok() {
        verify(&packed, &|_| ()).expect("a packed folder is complete");
        unpack(&Job { from: &packed, to: &plain, verify: false }, &|_| ()).expect("a packed folder unpacks");
        for name in FILES {
            let [first, last] = [&from, &plain].map(|folder| fs::read(folder.join(name)).ok());
            assert!(first == last, "{name} came back changed");
        }
    }
}
