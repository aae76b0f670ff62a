//! The attention kernels, run on the CPU by `hopper.h`: correct for entries in every layout, any
//! sequence lengths, pages in any order, appended and fresh tokens, stream-K and clusters.
#![cfg(target_arch = "x86_64")]

use std::{path::PathBuf, process::Command};

/// Builds and runs a kernel: head dimension, columns, fresh token, clusters, and log2 of a page's
/// mma tiles. CTAs are the library's, with less shared memory, so that stages are reused.
fn run(values: u32, columns: u32, fresh: u32, clusters: bool, page: u32) {
    let (teams, shared, cluster) = match (clusters, columns) {
        (true, _) => (2, 113 << 10, 8),
        (false, 8) => (4, 150 << 10, 1),
        (false, _) => (3, 160 << 10, 1),
    };
    let name = format!("attention-{values}-{columns}-{fresh}-{cluster}");
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(&name);
    let shape = [
        ("VALUES", values),
        ("COLUMNS", columns),
        ("TEAMS", teams),
        ("SHARED", shared),
        ("FRESH", fresh),
        ("CLUSTER", cluster),
    ];
    let status = Command::new(std::env::var_os("CXX").unwrap_or("g++".into()))
        .args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-Wno-psabi"])
        .args(["-fsanitize=undefined", "-fno-sanitize-recover=all"])
        .args(buddy_cuda::constants().iter().map(|define| format!("-D{define}")))
        .args(shape.iter().map(|(name, value)| format!("-DBUDDY_ATTENTION_{name}={value}")))
        .args(["-DBUDDY_ATTENTION_SOURCE=Packed", "-DBUDDY_WINDOW=112"])
        .arg(format!("-DBUDDY_TEST_PAGE={page}"))
        .args([concat!(env!("CARGO_MANIFEST_DIR"), "/tests/attention.cpp"), "-o"])
        .arg(&program)
        .status();
    assert!(status.expect("a C++ compiler ($CXX or g++)").success(), "attention.cpp does not compile");
    assert!(Command::new(&program).status().unwrap().success(), "{name}: see above");
}

#[test]
fn attention_in_runs_is_right_for_entries_in_every_layout() {
    run(128, 8, 0, false, 0);
    run(64, 16, 0, false, 2);
}

#[test]
fn fresh_tokens_are_rotated_appended_and_attended_to() {
    run(128, 16, 1, false, 1);
    run(64, 8, 1, false, 2);
}

#[test]
fn clusters_reduce_partials_in_the_last_cta() {
    run(128, 8, 1, true, 2);
    run(64, 8, 0, true, 0);
}
