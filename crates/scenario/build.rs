//! Fingerprints the sources that decide a result, so that stored results of another build are not
//! reused.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Crates that affect a stored result.
const CRATES: [&str; 10] =
    ["core", "codec", "snapshot", "memory", "profile", "trace", "workloads", "sim", "dl", "scenario"];

/// The offset basis of 64-bit FNV-1a.
const FNV: u64 = 0xcbf2_9ce4_8422_2325;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let mut files = Vec::new();
    for name in CRATES.iter().chain(&["study"]) {
        let sources = Path::new("..").join(name).join("src");
        watch(&sources, &mut files);
    }
    for folder in ["../../specs", "../../data/recorded"] {
        watch(Path::new(folder), &mut files);
    }
    files.sort();
    // In a published package, the version stands for the sources.
    let start = if files.is_empty() { mix(FNV, env!("CARGO_PKG_VERSION").as_bytes()) } else { FNV };
    let sum = files.iter().fold(start, |sum, path| {
        let sum = mix(sum, path.to_string_lossy().as_bytes());
        mix(sum, &fs::read(path).unwrap_or_default())
    });
    println!("cargo:rustc-env=BUDDY_BUILD={sum:016x}");
}

/// Collects all files below a folder of the repository, and runs again when one changes.
fn watch(folder: &Path, files: &mut Vec<PathBuf>) {
    if folder.exists() {
        println!("cargo:rerun-if-changed={}", folder.display());
        collect(folder, files);
    }
}

/// Collects all files below a folder.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { collect(&path, files) } else { files.push(path) }
    }
}

/// FNV-1a, as in the stores of records.
fn mix(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
