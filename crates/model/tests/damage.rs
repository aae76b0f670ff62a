//! Packed files and folders that changed: refused, or unpacked to the original bytes.
//!
//! `BUDDY_DAMAGE` sets the number of changed files and folders, `BUDDY_DAMAGE_SEED` their seed:
//! `BUDDY_DAMAGE=10000 cargo test --release -p buddy-model --test damage -- --nocapture`.

mod common;

use std::{
    fs,
    path::{Path, PathBuf},
};

use buddy_codec::samples::Noise;
use buddy_model::{Error, Job, pack, unpack, verify, verify_shards};
use common::{files, normal, write};
use safetensors::Dtype;
use tempfile::TempDir;

fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(usual)
}

fn go(from: &Path, to: &Path) -> Result<(), Error> {
    unpack(&Job { from, to, verify: false }, &|_| ()).map(drop)
}

/// A small model of two shards and its packed folder.
struct Model {
    dir: TempDir,
}

impl Model {
    fn new() -> Self {
        let model = Self { dir: tempfile::tempdir().unwrap() };
        let plain = model.path("plain");
        fs::create_dir(&plain).unwrap();
        let w = |seed| ("w", Dtype::BF16, &[64usize, 64][..], normal(64 * 64, 0.02, seed));
        write(&plain.join("a.safetensors"), &[w(1), ("v", Dtype::BF16, &[64, 64], normal(64 * 64, 0.02, 2))]);
        write(&plain.join("b.safetensors"), &[w(3), ("b", Dtype::U8, &[5], vec![1; 5])]);
        fs::write(plain.join("config.json"), "{\"vocab_size\": 40}").unwrap();
        fs::write(plain.join("tokenizer.json"), "{\"a\": 1}").unwrap();
        pack(&Job { from: &plain, to: &model.path("packed"), verify: true }, &|_| ()).unwrap();
        model
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Makes `changed` a fresh copy of the packed folder, and returns it.
    fn copy(&self) -> PathBuf {
        let changed = self.path("changed");
        let _ = fs::remove_dir_all(&changed);
        fs::create_dir(&changed).unwrap();
        for (name, bytes) in files(&self.path("packed")) {
            fs::write(changed.join(name), bytes).unwrap();
        }
        changed
    }

    /// Unpacks a changed folder; returns whether it was accepted. Panics if other bytes came out.
    fn accepts(&self, changed: &Path, about: &str) -> bool {
        let out = self.path("out");
        let _ = fs::remove_dir_all(&out);
        if go(changed, &out).is_err() {
            return false;
        }
        assert_eq!(files(&out), files(&self.path("plain")), "other bytes were accepted: {about}");
        true
    }
}

/// Changes bytes in one of several ways.
fn spoil(bytes: &mut Vec<u8>, noise: &mut Noise) -> String {
    let mut below = |most: usize| noise.next() as usize % most.max(1);
    let (way, at, other) = (below(8), below(bytes.len()), below(bytes.len()));
    let length = (1 + below(600)).min(bytes.len() - at.max(other));
    match way {
        0..3 => bytes[at] ^= 1 << below(8),
        3 => bytes[at..at + length].fill(below(256) as u8),
        4 => bytes.truncate(at),
        5 => bytes.extend(vec![0; length]),
        6 => bytes.copy_within(other..other + length, at),
        _ => {
            let part = bytes[other..other + length].to_vec();
            bytes.copy_within(at..at + length, other);
            bytes[at..at + length].copy_from_slice(&part);
        }
    }
    format!("way {way} at {at}, {other}, {length} bytes")
}

#[test]
fn changed_folders_are_refused_or_give_the_original() {
    let (count, seed) = (setting("BUDDY_DAMAGE", 300), setting("BUDDY_DAMAGE_SEED", 1));
    let model = Model::new();
    let packed = files(&model.path("packed"));
    let names: Vec<&String> = packed.keys().collect();
    let (mut accepted, mut same) = (0, 0);
    for number in 0..count {
        let mut noise = Noise(seed.wrapping_mul(1 << 32) + 2 * number + 1);
        let changed = model.copy();
        let name = names[noise.next() as usize % names.len()];
        let other = names[noise.next() as usize % names.len()];
        let about = match noise.next() % 16 {
            0 => {
                fs::remove_file(changed.join(name)).unwrap();
                format!("without {name}")
            }
            1 => {
                fs::copy(model.path("packed").join(other), changed.join(name)).unwrap();
                format!("{name} replaced by {other}")
            }
            2 => {
                fs::copy(changed.join(name), changed.join("c.safetensors")).unwrap();
                format!("{name} twice")
            }
            _ => {
                let mut bytes = packed[name].clone();
                let about = spoil(&mut bytes, &mut noise);
                fs::write(changed.join(name), bytes).unwrap();
                format!("{name}: {about}")
            }
        };
        same += u64::from(files(&changed) == packed);
        accepted += u64::from(model.accepts(&changed, &format!("{number} of seed {seed}: {about}")));
    }
    println!("{count} changed folders: {accepted} accepted with the original bytes, {same} were unchanged");
    // A changed `config.json` of the packed folder is not in the result.
    assert!(accepted * 3 < count, "{accepted} of {count} were accepted");
}

#[test]
fn changed_files_are_refused() {
    let (count, seed) = (setting("BUDDY_DAMAGE", 300), setting("BUDDY_DAMAGE_SEED", 1));
    let model = Model::new();
    let (changed, out) = (model.path("changed.safetensors"), model.path("out.safetensors"));
    let (packed, plain) =
        ["packed", "plain"].map(|name| fs::read(model.path(name).join("a.safetensors")).unwrap()).into();
    let mut accepted = 0;
    for number in 0..count {
        let mut bytes = packed.clone();
        let about = spoil(&mut bytes, &mut Noise(seed.wrapping_mul(1 << 32) + 2 * number + 1));
        fs::write(&changed, &bytes).unwrap();
        if go(&changed, &out).is_ok() {
            assert_eq!(fs::read(&out).unwrap(), plain, "{number} of seed {seed}: {about}");
            assert_eq!(bytes, packed, "{number} of seed {seed}: {about}");
            accepted += 1;
        }
    }
    println!("{count} changed files: {accepted} accepted, all unchanged");
}

#[test]
fn every_single_bit_flip_of_a_packed_file_is_refused() {
    let model = Model::new();
    for name in ["a.safetensors", "b.safetensors", "buddy.json"] {
        let bytes = fs::read(model.path("packed").join(name)).unwrap();
        let changed = model.copy();
        // 60 bits spread over the file, and more of its first bytes.
        let step = bytes.len() / 60;
        for at in (0..bytes.len()).filter(|at| at % step == 0 || (*at < 400 && at % 7 == 0)) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            fs::write(changed.join(name), flipped).unwrap();
            let found = verify(&changed, &|_| ());
            assert!(found.is_err(), "byte {at} of {name} gives {found:?}");
            assert!(!model.accepts(&changed, name), "byte {at} of {name} unpacks");
            let shards = ["a.safetensors", "b.safetensors"].map(|name| changed.join(name));
            assert!(verify_shards(&shards, &|_| ()).is_err(), "byte {at} of {name} loads");
        }
    }
}

#[test]
fn a_whole_folder_passes_every_check() {
    let model = Model::new();
    let checked = verify(&model.path("packed"), &|_| ()).unwrap();
    assert_eq!((checked.files, checked.unchecked), (4, 0));
    let shard = model.path("packed").join("a.safetensors");
    assert_eq!(verify_shards(std::slice::from_ref(&shard), &|_| ()).unwrap().files, 1);
    // A shard alone, as a cache of downloads holds it, has its own checksums.
    let alone = model.path("alone.safetensors");
    fs::copy(shard, &alone).unwrap();
    assert_eq!(verify_shards(&[alone], &|_| ()).unwrap().files, 1);
}

#[test]
fn an_incomplete_folder_is_refused_with_its_remedy() {
    let model = Model::new();
    let missing = |name: &str| {
        let changed = model.copy();
        fs::remove_file(changed.join(name)).unwrap();
        let (checked, unpacked) = (verify(&changed, &|_| ()), go(&changed, &model.path("out")));
        assert!(!model.path("out").exists(), "files were written without {name}");
        let shards = [changed.join("b.safetensors")];
        (
            checked.unwrap_err().to_string(),
            unpacked.unwrap_err().to_string(),
            verify_shards(&shards, &|_| ()).is_err(),
        )
    };
    let (checked, unpacked, loads) = missing("a.safetensors");
    assert!(checked.contains("a.safetensors: buddy.json lists this file") && checked == unpacked && loads);
    let (checked, unpacked, loads) = missing("tokenizer.json");
    assert!(checked.contains("tokenizer.json: buddy.json lists") && checked == unpacked && !loads);
    assert!(missing("buddy.json").0.contains("not packed by Buddy"));
    let unlisted = model.copy();
    fs::copy(unlisted.join("a.safetensors"), unlisted.join("z.safetensors")).unwrap();
    assert!(
        verify(&unlisted, &|_| ())
            .unwrap_err()
            .to_string()
            .contains("z.safetensors: buddy.json does not list")
    );
}

#[test]
fn packing_again_repairs_a_damaged_folder() {
    let model = Model::new();
    let (plain, packed) = (model.path("plain"), model.path("packed"));
    let whole = files(&packed);
    for name in ["a.safetensors", "buddy.json", "config.json"] {
        let mut bytes = whole[name].clone();
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        fs::write(packed.join(name), bytes).unwrap();
        assert!(verify(&packed, &|_| ()).is_err(), "{name}");
        pack(&Job { from: &plain, to: &packed, verify: false }, &|_| ()).unwrap();
        assert_eq!(files(&packed), whole, "{name}");
    }
}
