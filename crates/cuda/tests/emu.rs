//! `emu.h`, which runs kernels on the CPU: it computes what a GPU computes, and wrong kernels fail.
#![cfg(target_arch = "x86_64")]

use std::{
    path::PathBuf,
    process::{Command, Output},
    sync::OnceLock,
};

/// Builds a program of this folder.
fn build(name: &str) -> PathBuf {
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let source = format!("{}/tests/{name}.cpp", env!("CARGO_MANIFEST_DIR"));
    let status = Command::new(std::env::var_os("CXX").unwrap_or("g++".into()))
        .args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined"])
        .args(["-fno-sanitize-recover=all"])
        .args(buddy_cuda::constants().iter().map(|define| format!("-D{define}")))
        .arg(source)
        .arg("-o")
        .arg(&program)
        .status();
    assert!(status.expect("a C++ compiler ($CXX or g++)").success(), "{name}.cpp does not compile");
    program
}

fn run(what: &str) -> Output {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    Command::new(PROGRAM.get_or_init(|| build("emu"))).arg(what).output().expect("a start")
}

#[test]
fn barriers_shuffles_and_copies_behave_as_on_a_gpu() {
    for what in ["sum", "late", "race"] {
        let output = run(what);
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_deadlock_is_reported() {
    let output = run("deadlock");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("deadlock"));
}

#[test]
fn values_after_a_relu_have_the_streams_of_bf16() {
    let output = Command::new(build("positive")).output().expect("a start");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let taken: u32 = String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number");
    assert!(taken > 50_000, "only {taken} entries were taken by its own way");
}
