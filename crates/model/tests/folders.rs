//! Packing and unpacking of unusual folders.

mod common;

use std::{
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

use buddy_model::{Error, Job, Progress, Report, pack, pack_tight, unpack, verify};
use common::{files, normal, write};
use safetensors::Dtype;

type Pack = fn(&Job<'_>, Progress<'_>) -> Result<Report, Error>;

fn job(from: &Path, to: &Path) -> Result<Report, Error> {
    pack(&Job { from, to, verify: false }, &|_| ())
}

/// A folder with one shard of one matrix.
fn model(folder: &Path, columns: usize) {
    model_of(folder, columns, 1);
}

fn model_of(folder: &Path, columns: usize, seed: u64) {
    fs::create_dir_all(folder).unwrap();
    let values = normal(64 * columns, 0.02, seed);
    write(&folder.join("model.safetensors"), &[("w", Dtype::BF16, &[64, columns], values)]);
    fs::write(folder.join("config.json"), "{}").unwrap();
}

fn paths() -> (tempfile::TempDir, PathBuf, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let [plain, packed, back] = ["plain", "packed", "back"].map(|name| dir.path().join(name));
    model(&plain, 64);
    (dir, plain, packed, back)
}

#[test]
fn special_files_are_found_before_anything_is_written() {
    let refused = |make: &dyn Fn(&Path)| {
        let (_dir, plain, packed, _) = paths();
        make(&plain);
        let found = job(&plain, &packed).unwrap_err().to_string();
        assert!(!packed.exists(), "{found}");
        found
    };
    let link = refused(&|plain| symlink("nowhere", plain.join("link.txt")).unwrap());
    assert!(link.contains("link.txt: this is a link to a file that does not exist"), "{link}");
    let pipe = refused(&|plain| {
        assert!(std::process::Command::new("mkfifo").arg(plain.join("pipe")).status().unwrap().success());
    });
    assert!(pipe.contains("pipe: this is no regular file"), "{pipe}");
    let name = refused(&|plain| fs::write(plain.join(OsStr::from_bytes(b"caf\xe9.txt")), "").unwrap());
    assert!(name.contains("not UTF-8"), "{name}");
    let config = refused(&|plain| fs::write(plain.join("config.json"), "[1]").unwrap());
    assert!(config.contains("config.json"), "{config}");
}

#[test]
fn files_of_the_user_come_back_whatever_their_name() {
    let (_dir, plain, packed, back) = paths();
    for name in ["notes.part", ".hidden", "a.part.txt", ".b.part"] {
        fs::write(plain.join(name), name).unwrap();
    }
    symlink("notes.part", plain.join("link")).unwrap();
    job(&plain, &packed).unwrap();
    unpack(&Job { from: &packed, to: &back, verify: false }, &|_| ()).unwrap();
    assert_eq!(files(&back), files(&plain));
}

#[test]
fn permissions_are_kept() {
    let (_dir, plain, packed, back) = paths();
    fs::write(plain.join("run.sh"), "").unwrap();
    let modes = [("model.safetensors", 0o640), ("config.json", 0o600), ("run.sh", 0o755)];
    for (name, mode) in modes {
        fs::set_permissions(plain.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    job(&plain, &packed).unwrap();
    unpack(&Job { from: &packed, to: &back, verify: false }, &|_| ()).unwrap();
    for (name, mode) in modes {
        for folder in [&packed, &back] {
            let found = folder.join(name).metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(found, mode, "{name} in {}", folder.display());
        }
    }
}

#[test]
fn two_models_in_one_folder_are_refused() {
    let (dir, plain, packed, back) = paths();
    job(&plain, &packed).unwrap();
    let whole = files(&packed);
    // Other names, then the same name with other tensors.
    let [second, third] = ["second", "third"].map(|name| dir.path().join(name));
    model(&second, 64);
    fs::rename(second.join("model.safetensors"), second.join("other.safetensors")).unwrap();
    model(&third, 128);
    let names = job(&second, &packed).unwrap_err().to_string();
    assert!(names.contains("model.safetensors is there, which is no part of this model"), "{names}");
    let tensors = job(&third, &packed).unwrap_err().to_string();
    assert!(tensors.contains("another model was packed here"), "{tensors}");
    assert_eq!(files(&packed), whole, "the first model is as it was");
    let over = job(&plain, &second).unwrap_err().to_string();
    assert!(over.contains("is there"), "a plain model is not overwritten: {over}");
    let mixed = unpack(&Job { from: &packed, to: &second, verify: false }, &|_| ()).unwrap_err().to_string();
    assert!(mixed.contains("other.safetensors is there"), "{mixed}");
    unpack(&Job { from: &packed, to: &back, verify: false }, &|_| ()).unwrap();
    let again = unpack(&Job { from: &packed, to: &back, verify: false }, &|_| ());
    assert!(again.is_ok(), "the same model may be unpacked again: {again:?}");
}

#[test]
fn a_model_of_equal_shapes_and_times_is_packed_anew() {
    let (dir, plain, packed, back) = paths();
    let second = dir.path().join("second");
    model_of(&second, 64, 2);
    for folder in [&plain, &second] {
        let shard = fs::File::options().write(true).open(folder.join("model.safetensors")).unwrap();
        shard.set_modified(UNIX_EPOCH + Duration::from_secs(1)).unwrap();
    }
    job(&plain, &packed).unwrap();
    assert_eq!(job(&plain, &packed).unwrap().resumed, 1, "an unchanged file is not packed again");
    let report = job(&second, &packed).unwrap();
    assert_eq!((report.files, report.resumed), (1, 0), "another file was taken for the packed one");
    unpack(&Job { from: &packed, to: &back, verify: false }, &|_| ()).unwrap();
    assert_eq!(files(&back), files(&second));
}

#[test]
fn a_folder_gets_the_layout_of_the_last_run() {
    let (dir, plain, packed, _) = paths();
    model(&plain, 128);
    let (layouts, other): ([Pack; 2], _) = ([pack, pack_tight], dir.path().join("other"));
    for (first, second) in [(0, 1), (1, 0)] {
        for folder in [&packed, &other] {
            let _ = fs::remove_dir_all(folder);
        }
        let go = |layout: usize, to: &Path| {
            layouts[layout](&Job { from: &plain, to, verify: false }, &|_| ()).unwrap()
        };
        go(first, &packed);
        assert_eq!(go(first, &packed).resumed, 1);
        assert_eq!(go(second, &packed).resumed, 0, "the other layout stays");
        go(second, &other);
        assert_eq!(files(&packed), files(&other), "{first} then {second}");
    }
}

#[test]
fn a_shard_without_matrices_has_every_layout() {
    let (_dir, plain, packed, _) = paths();
    model(&plain, 128);
    write(&plain.join("norms.safetensors"), &[("n", Dtype::BF16, &[64], normal(64, 1.0, 2))]);
    let tight = || pack_tight(&Job { from: &plain, to: &packed, verify: false }, &|_| ()).unwrap();
    tight();
    assert_eq!(job(&plain, &packed).unwrap().resumed, 1);
    assert_eq!(tight().resumed, 1);
    assert_eq!(tight().resumed, 2);
}

#[test]
fn a_folder_that_was_not_unpacked_to_the_end_is_refused() {
    let (dir, plain, packed, back) = paths();
    write(&plain.join("z.safetensors"), &[("n", Dtype::BF16, &[64, 64], normal(64 * 64, 1.0, 2))]);
    fs::remove_file(plain.join("config.json")).unwrap();
    job(&plain, &packed).unwrap();
    let whole = fs::read(packed.join("z.safetensors")).unwrap();
    let mut damaged = whole.clone();
    *damaged.last_mut().unwrap() ^= 1;
    fs::write(packed.join("z.safetensors"), damaged).unwrap();
    let unpack = || unpack(&Job { from: &packed, to: &back, verify: false }, &|_| ());
    assert!(unpack().unwrap_err().to_string().contains("z.safetensors"));
    assert!(back.join("model.safetensors").exists(), "one file was there before the damage was found");
    for refused in [job(&back, &dir.path().join("again")), job(&plain, &back)] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("unpacking did not finish here"), "{refused}");
    }
    fs::write(packed.join("z.safetensors"), whole).unwrap();
    unpack().unwrap();
    assert_eq!(files(&back), files(&plain));
    job(&back, &dir.path().join("again")).unwrap();
}

#[test]
fn leftovers_of_a_killed_run_are_removed_and_those_of_a_running_one_stay() {
    let (_dir, plain, packed, _) = paths();
    fs::create_dir(&packed).unwrap();
    let [dead, alive] =
        ["0", "1"].map(|n| packed.join(format!(".model.safetensors.0123456789abcdef.{n}.part")));
    fs::write(&dead, "half").unwrap();
    let running = fs::File::create(&alive).unwrap();
    running.lock().unwrap();
    job(&plain, &packed).unwrap();
    assert!(!dead.exists() && alive.exists());
}

#[test]
fn a_matrix_that_padding_would_grow_stays_plain() {
    let dir = tempfile::tempdir().unwrap();
    let [plain, packed, back] = ["a", "b", "c"].map(|name| dir.path().join(format!("{name}.safetensors")));
    write(
        &plain,
        &[
            ("row", Dtype::BF16, &[1, 65536], normal(65536, 0.02, 1)),
            ("rows", Dtype::BF16, &[64, 64], normal(4096, 0.02, 2)),
            ("scalar", Dtype::BF16, &[], normal(1, 1.0, 3)),
            ("none", Dtype::BF16, &[0, 64], Vec::new()),
        ],
    );
    let report = job(&plain, &packed).unwrap();
    assert!(report.sizes.packed < report.sizes.plain, "{report:?}");
    unpack(&Job { from: &packed, to: &back, verify: false }, &|_| ()).unwrap();
    assert_eq!(fs::read(&back).unwrap(), fs::read(&plain).unwrap());
    assert_eq!(verify(&packed, &|_| ()).unwrap().files, 1);
}

#[test]
fn an_output_that_cannot_be_written_is_the_file_that_the_error_names() {
    let (_dir, plain, _, _) = paths();
    let full = Path::new("/dev/full");
    if !full.exists() {
        eprintln!("SKIPPED: no /dev/full");
        return;
    }
    let found = job(&plain.join("model.safetensors"), full).unwrap_err().to_string();
    assert!(found.starts_with("/dev/full: ") && !found.contains("model.safetensors"), "{found}");
}
