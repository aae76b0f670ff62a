//! `buddy pack` and `buddy unpack`, as a user calls them.

use std::fs;

use crate::common::{SAMPLE, buddy};

/// A safetensors file of one bf16 matrix of 64 rows.
fn model() -> Vec<u8> {
    let value = |i: u32| (0x3c00 + (i.wrapping_mul(2_654_435_761) >> 25) as u16) | ((i % 2) as u16) << 15;
    let values: Vec<u8> = (0..64 * 128).flat_map(|i| value(i).to_le_bytes()).collect();
    let header =
        r#"{"__metadata__":{"format":"pt"},"w":{"dtype":"BF16","shape":[64,128],"data_offsets":[0,16384]}}"#;
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &values].concat()
}

#[test]
fn a_model_is_packed_and_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (plain, packed, back) =
        (path("plain.safetensors"), path("packed.safetensors"), path("back.safetensors"));
    fs::write(&plain, model()).unwrap();
    let run = buddy(&["pack", &plain, "--out", &packed, "--verify"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.contains("verified: every byte"), "{}", run.stdout);
    let bytes = fs::metadata(&packed).unwrap().len();
    assert!(bytes < 14_000, "{bytes}");
    assert_eq!(buddy(&["unpack", &packed, "--out", &back]).code, 0);
    assert_eq!(fs::read(&back).unwrap(), model());
}

#[test]
fn a_path_without_a_model_is_an_error_of_one_line() {
    let run = buddy(&["pack", SAMPLE, "--out", "nowhere"]);
    assert_eq!((run.code, run.stdout.as_str()), (1, ""));
    assert!(run.stderr.contains("no .safetensors file here"), "{}", run.stderr);
}

#[test]
fn a_path_that_leads_nowhere_is_called_so() {
    for verb in ["pack", "unpack"] {
        let run = buddy(&[verb, "nowhere", "--out", "elsewhere"]);
        assert_eq!((run.code, run.stdout.as_str()), (1, ""));
        assert!(run.stderr.starts_with("buddy: nowhere: there is no such file or folder"), "{}", run.stderr);
    }
}

#[test]
fn a_packed_folder_with_a_cut_file_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (plain, packed, back) = (path("plain"), path("packed"), path("back"));
    fs::create_dir(&plain).unwrap();
    fs::write(path("plain/a.safetensors"), model()).unwrap();
    fs::write(path("plain/b.safetensors"), model()).unwrap();
    assert_eq!(buddy(&["pack", &plain, "--out", &packed]).code, 0);
    let cut = path("packed/b.safetensors");
    let whole = fs::read(&cut).unwrap();
    fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let run = buddy(&["unpack", &packed, "--out", &back]);
    assert_eq!((run.code, run.stdout.as_str()), (1, ""));
    assert_eq!(run.stderr.matches("b.safetensors").count(), 1, "{}", run.stderr);
    assert!(!std::path::Path::new(&back).exists(), "files before the cut one were written");
}

#[test]
fn verify_accepts_a_packed_folder_and_names_what_changed() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (plain, packed) = (path("plain"), path("packed"));
    fs::create_dir(&plain).unwrap();
    fs::write(path("plain/a.safetensors"), model()).unwrap();
    fs::write(path("plain/notes.txt"), "mine").unwrap();
    assert_eq!(buddy(&["pack", &plain, "--out", &packed]).code, 0);
    let whole = buddy(&["verify", &packed]);
    assert!(whole.code == 0 && whole.stdout.starts_with("checked 2 files: "), "{}", whole.stdout);
    let shard = path("packed/a.safetensors");
    let mut bytes = fs::read(&shard).unwrap();
    let last = bytes.len() - 1000;
    bytes[last] ^= 1;
    fs::write(&shard, bytes).unwrap();
    for args in [&["verify", &packed][..], &["unpack", &packed, "--out", &path("back")]] {
        let run = buddy(args);
        assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{args:?}");
        assert!(
            run.stderr.contains("a.safetensors: w: ") && run.stderr.contains("checksum"),
            "{}",
            run.stderr
        );
    }
    let old = buddy(&["verify", concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/versions/model-1")]);
    assert!(old.code == 0 && old.stderr.contains("packed without checksums: not checked"), "{}", old.stderr);
}
