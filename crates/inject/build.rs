//! Compiles the injected library, which uses the standard library alone, with one call of the
//! compiler.
//!
//! `crates/tracer/build.rs` is a link to this file.

use std::{env, ffi::OsString, path::PathBuf, process::Command};

fn main() {
    println!("cargo:rerun-if-changed=inject");
    let name = match env!("CARGO_PKG_NAME") {
        "buddy-inject" => "buddy_watch",
        _ => "buddy_tracer",
    };
    let out =
        PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join(format!("lib{name}.so"));
    let rustc = env::var_os("RUSTC").expect("cargo sets RUSTC");
    let target = env::var("TARGET").expect("cargo sets TARGET");
    let flags =
        ["--edition=2024", "--crate-type=cdylib", "-Copt-level=2", "-Cstrip=symbols", "inject/lib.rs"];
    let mut command = Command::new(rustc);
    command.args(flags).args(["--crate-name", name, "--target", &target, "-o"]).arg(&out);
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut flag = OsString::from("-Clinker=");
        flag.push(linker);
        command.arg(flag);
    }
    let status = command.status();
    assert!(status.is_ok_and(|status| status.success()), "the injected library does not compile");
}
