//! `buddy_stencil.cuh` and the programs of `examples/stencil`, run on the CPU by `emu.h`: compressed and
//! plain memory have the bits of a plain loop.
#![cfg(target_arch = "x86_64")]

use std::{
    path::PathBuf,
    process::{Command, Output},
};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Builds a program with the emulated GPU and runs it with these arguments.
fn run(source: &str, arguments: &[&str]) -> Output {
    let name = source.rsplit('/').next().unwrap_or(source);
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("stencil-{name}"));
    let status = Command::new(std::env::var_os("CXX").unwrap_or("g++".into()))
        .args(["-std=c++17", "-O2", "-mfma", "-ffp-contract=off", "-fno-math-errno"])
        .args(["-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-DBUDDY_EMULATED"])
        .args(buddy_cuda::constants().iter().map(|define| format!("-D{define}")))
        .args([format!("-I{HERE}/kernels"), format!("-I{HERE}/../../examples/stencil")])
        .args(["-include".into(), format!("{HERE}/tests/emu.h")])
        .args(["-include".into(), format!("{HERE}/tests/runtime.h")])
        .args(["-x", "c++", &format!("{HERE}/{source}"), "-o"])
        .arg(&program)
        .status();
    assert!(status.expect("a C++ compiler ($CXX or g++)").success(), "{source} does not compile");
    Command::new(program).args(arguments).output().expect("a start")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

#[test]
fn stencils_in_compressed_memory_equal_a_plain_loop_to_the_bit() {
    let output = run("tests/stencil.cpp", &[]);
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn the_example_programs_compare_every_value() {
    let size = ["--cells", "64,64,64", "--apart", "64", "--steps", "10", "--card-times", "0.003"];
    let output = run("../../examples/stencil/gray_scott.cu", &size);
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("times the card") && said(&output).contains("every value is the same"));
    let output = run(
        "../../examples/stencil/wave.cu",
        &["--cells", "64,64,64", "--apart", "64", "--steps", "6", "--windows"],
    );
    assert!(
        output.status.success() && said(&output).contains("every value is the same"),
        "{}",
        said(&output)
    );
}
