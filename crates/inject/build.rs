//! Compiles the injected library, which uses the standard library alone, with one call of the
//! compiler.

use std::{env, path::PathBuf, process::Command};

fn main() {
    println!("cargo:rerun-if-changed=inject");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("libbuddy_watch.so");
    let rustc = env::var_os("RUSTC").expect("cargo sets RUSTC");
    let target = env::var("TARGET").expect("cargo sets TARGET");
    let flags = [
        "--edition=2024",
        "--crate-type=cdylib",
        "--crate-name=buddy_watch",
        "-Copt-level=2",
        "-Cstrip=symbols",
    ];
    let status =
        Command::new(rustc).args(flags).args(["--target", &target, "inject/lib.rs", "-o"]).arg(&out).status();
    assert!(status.is_ok_and(|status| status.success()), "the injected library does not compile");
}
