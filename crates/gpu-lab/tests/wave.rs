//! The wave's kernels, run on the CPU by `crates/cuda/tests/emu.h`, equal the CPU's wave bit for
//! bit: in plain memory, and in compressed memory with windows, retargeting and overflow.
#![cfg(target_arch = "x86_64")]

use std::{fs, path::PathBuf, process::Command};

use buddy_gpu_lab::{Grid, Reference, WaveProblem};

fn tests_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn temporary(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Compiles with few planes per block, so that small grids have several blocks.
fn compile() -> PathBuf {
    let program = temporary("wave");
    let status = Command::new(std::env::var_os("CXX").unwrap_or("g++".into()))
        .args([
            "-std=c++17",
            "-O2",
            "-mfma",
            "-ffp-contract=off",
            "-fno-math-errno",
            "-Wall",
            "-Wextra",
            "-Werror",
        ])
        .arg("-Wno-unknown-pragmas")
        .args(WaveProblem::defines(8, 16).iter().map(|define| format!("-D{define}")))
        .arg(format!("-I{}", tests_dir().join("../kernels").display()))
        .arg(format!("-I{}", tests_dir().join("../../cuda/kernels").display()))
        .arg(tests_dir().join("wave.cpp"))
        .arg("-o")
        .arg(&program)
        .status();
    assert!(status.expect("a C++ compiler ($CXX or g++)").success(), "wave.cpp does not compile");
    program
}

/// Runs one problem; returns compressed memory's field, its slice, and plain memory's field.
fn run(program: &PathBuf, name: &str, problem: WaveProblem) {
    let (asked, given) = (temporary(&format!("wave-{name}")), temporary(&format!("wave-{name}-result")));
    fs::write(&asked, problem.to_bytes()).unwrap();
    let output = Command::new(program).args([&asked, &given]).output().expect("a start");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    let values: Vec<u32> = fs::read(&given)
        .unwrap()
        .chunks_exact(4)
        .map(|four| u32::from_le_bytes(four.try_into().unwrap()))
        .collect();
    let Grid { x, y, z } = problem.grid;
    let mut wave = Reference::new(problem.grid);
    (0..problem.steps).for_each(|_| wave.advance());
    let expected: Vec<u32> = wave.values().iter().map(|value| value.to_bits()).collect();
    let (row, plane) = (x as usize, (x * y) as usize);
    let slice = (0..z as usize).flat_map(|k| expected[k * plane + y as usize / 2 * row..][..row].to_vec());
    let all: Vec<u32> = expected.iter().copied().chain(slice).chain(expected.iter().copied()).collect();
    assert_eq!(values.len(), all.len(), "{name}");
    let wrong = values.iter().zip(&all).filter(|(a, b)| a != b).count();
    assert_eq!(wrong, 0, "{name}: values that are not the CPU's");
    assert!(expected.iter().any(|&value| value != 0), "{name}: the wave is everywhere zero");
}

#[test]
fn kernels_give_the_cpus_wave_to_the_bit() {
    let program = compile();
    let grid = |x, y, z| Grid { x, y, z };
    let problem =
        |grid, steps, windows, percent, retarget| WaveProblem { grid, steps, windows, percent, retarget };
    run(&program, "raw", problem(grid(64, 32, 9), 14, false, 100, false));
    run(&program, "windows", problem(grid(128, 64, 19), 24, true, 100, false));
    run(&program, "scarce", problem(grid(192, 96, 24), 14, true, 45, true));
    run(&program, "long", problem(grid(64, 64, 40), 40, true, 50, true));
}
