//! `buddy analyze` from the outside: what it prints, what it writes, and that bad input leaves nothing behind.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use tempfile::TempDir;

fn buddy(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_buddy")).current_dir(dir).arg("analyze").args(args).output().unwrap()
}

/// A safetensors file of a ramp and of zeros.
fn model(dir: &Path) {
    let header = r#"{"ramp":{"dtype":"I32","shape":[3200],"data_offsets":[0,12800]},"zeros":{"dtype":"F32","shape":[1600],"data_offsets":[12800,19200]}}"#;
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend((0..3200i32).flat_map(i32::to_le_bytes));
    file.extend([0; 6400]);
    fs::write(dir.join("model.safetensors"), file).unwrap();
}

/// The message of a run that must fail with one line, exit code 1, an empty stdout and no new file.
fn refused(dir: &Path, args: &[&str]) -> String {
    let before = fs::read_dir(dir).unwrap().count();
    let output = buddy(dir, args);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty());
    assert_eq!(fs::read_dir(dir).unwrap().count(), before, "something was written");
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

#[test]
fn a_table_a_record_and_a_page() {
    let dir = TempDir::new().unwrap();
    model(dir.path());
    let output = buddy(dir.path(), &["model.safetensors", "--json", "a.json", "--html", "a.html"]);
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty());
    let table = String::from_utf8(output.stdout).unwrap();
    let ramp = table.lines().find(|line| line.starts_with("ramp")).unwrap();
    // 8 bytes an entry, but 16x is for what stays mostly zero.
    assert!(ramp.contains(" 4x ") && ramp.contains(" 4.00x") && ramp.contains("16.00x"), "{table}");
    let json: serde_json::Value =
        serde_json::from_slice(&fs::read(dir.path().join("a.json")).unwrap()).unwrap();
    assert_eq!((json["kind"].as_str(), json["data"]["threshold"].as_f64()), (Some("analysis"), Some(0.3)));
    assert_eq!(json["data"]["arrays"][0]["bpc"]["fit"]["histogram"]["classes"][1], 100);
    assert_eq!(json["data"]["arrays"][1]["bpc"]["fit"]["histogram"]["classes"][0], 50);
    assert!(fs::read_to_string(dir.path().join("a.html")).unwrap().contains("<canvas"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3, "no temporary file is left");
}

#[test]
fn raw_files_take_a_type_and_a_threshold() {
    let dir = TempDir::new().unwrap();
    let mut bytes = vec![0; 128 * 10];
    bytes[..128].copy_from_slice(&std::array::from_fn::<u8, 128, _>(|i| (i * i * 31 % 251) as u8));
    fs::write(dir.path().join("x.bin"), bytes).unwrap();
    let row = |args: &[&str]| {
        let output = buddy(dir.path(), &[&["x.bin"], args].concat());
        String::from_utf8(output.stdout).unwrap().lines().nth(2).unwrap().to_owned()
    };
    let all = row(&["--dtype", "f64"]);
    assert!(all.contains("f64") && all.contains("16x") && all.contains("10.0%"), "{all}");
    let none = row(&["--threshold", "0"]);
    assert!(none.contains("u8") && none.contains("1.00x"), "{none}");
}

#[test]
fn bad_files_are_refused_in_one_line() {
    let dir = TempDir::new().unwrap();
    model(dir.path());
    let write = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
    write("empty.bin", b"");
    write("odd.bin", b"12345");
    write("no.npz", b"this is no zip");
    write("no.npy", b"\x93NUMPY\x01\0\xff\xff");
    write("cut.safetensors", &fs::read(dir.path().join("model.safetensors")).unwrap()[..9000]);
    let refused =
        |args: &[&str]| refused(dir.path(), &[args, &["--json", "out.json", "--html", "out.html"]].concat());
    assert!(refused(&["missing.npy"]).starts_with("buddy: missing.npy: No such file"));
    fs::create_dir(dir.path().join("folder")).unwrap();
    assert!(refused(&["folder"]).contains("folder: this folder holds no file of arrays"));
    assert!(refused(&["empty.bin"]).contains("empty.bin: the file is empty"));
    assert!(refused(&["odd.bin", "--dtype", "f32"]).contains("5 bytes are not a whole number of f32"));
    assert!(refused(&["no.npz"]).contains("no.npz: not a valid .npz file"));
    assert!(refused(&["no.npy"]).contains("no.npy: not a valid .npy file"));
    assert!(refused(&["cut.safetensors"]).contains("go past the"));
    assert!(refused(&["model.safetensors", "missing"]).contains("missing: No such file"));
}

#[test]
fn outputs_that_cannot_be_written_are_found_before_reading() {
    let dir = TempDir::new().unwrap();
    model(dir.path());
    let refused = |args: &[&str]| refused(dir.path(), &[&["model.safetensors"], args].concat());
    assert!(refused(&["--json", "none/a.json"]).contains("there is no directory none"));
    assert!(refused(&["--html", "."]).contains("this is a directory"));
    assert!(refused(&["--html", "./model.safetensors"]).contains("this file is read"));
    assert!(refused(&["--html", "a", "--json", "a"]).contains("the same file"));
}

#[test]
fn wrong_usage_is_exit_code_2() {
    let dir = TempDir::new().unwrap();
    for args in
        [&[][..], &["x", "--dtype", "f33"], &["x", "--threshold", "1.1"], &["x", "--threshold", "NaN"]]
    {
        let output = buddy(dir.path(), args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
}
