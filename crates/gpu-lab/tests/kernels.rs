//! Kernels that work in compressed memory, run on the CPU (`crates/cuda/tests/emu.h`): their
//! results equal those in plain memory, bit for bit.
#![cfg(target_arch = "x86_64")]

use std::{path::PathBuf, process::Command};

use buddy_gpu_lab::StencilShape;

/// Builds and runs a program of this folder, which prints differences.
fn run(name: &str, defines: &[String]) {
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}{}", defines.join("")));
    let status = Command::new(std::env::var_os("CXX").unwrap_or("g++".into()))
        .args(["-std=c++17", "-O1", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror"])
        .args(["-fsanitize=undefined", "-fno-sanitize-recover=all"])
        .args(buddy_cuda::constants().iter().chain(defines).map(|define| format!("-D{define}")))
        .arg(concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../cuda/kernels"))
        .arg(format!("{}/tests/{name}.cpp", env!("CARGO_MANIFEST_DIR")))
        .arg("-o")
        .arg(&program)
        .status();
    assert!(status.expect("a C++ compiler ($CXX or g++)").success(), "{name}.cpp does not compile");
    let output = Command::new(program).output().expect("a start");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{name} {defines:?}: {}", String::from_utf8_lossy(&said));
}

#[test]
fn the_stencil_writes_what_it_writes_in_plain_memory() {
    let StencilShape { deep, threads, .. } = StencilShape::default();
    for (deep, threads) in [(deep, threads), (1, 1024)] {
        run("stencil", &[format!("BUDDY_STENCIL_DEEP={deep}"), format!("BUDDY_STENCIL_THREADS={threads}")]);
    }
}

#[test]
fn the_sparse_product_is_the_same_in_every_layout() {
    for lanes in [8, 32] {
        run("spmv", &[format!("BUDDY_SPMV_LANES={lanes}")]);
    }
}

#[test]
fn conjugate_gradients_are_the_same_and_converge() {
    run("cg", &[]);
}
