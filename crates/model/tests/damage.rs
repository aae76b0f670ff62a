//! Packed files and folders that changed: refused, or unpacked to the original bytes.
//!
//! `BUDDY_DAMAGE` sets the number of changed files and folders, `BUDDY_DAMAGE_SEED` their seed:
//! `BUDDY_DAMAGE=10000 cargo test --release -p buddy-model --test damage -- --nocapture`.

mod common;

use std::{
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use buddy_codec::{Tight, samples::Noise};
use buddy_model::{Error, Job, Progress, Report, pack, pack_tight, unpack, verify, verify_shards};
use common::{files, normal, write};
use safetensors::Dtype;
use tempfile::TempDir;

fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(usual)
}

fn go(from: &Path, to: &Path) -> Result<(), Error> {
    unpack(&Job { from, to, verify: false }, &|_| ()).map(drop)
}

/// Packs with one of the layouts.
type Pack = fn(&Job<'_>, Progress<'_>) -> Result<Report, Error>;

/// The layouts by name, and the columns of a matrix of 64 rows that it makes smaller.
const LAYOUTS: [(&str, Pack, usize); 2] = [("frozen", pack, 64), ("tight", pack_tight, 128)];

/// A small model of two shards and its packed folder.
struct Model {
    dir: TempDir,
}

impl Model {
    fn new() -> Self {
        Self::packed(pack, 64)
    }

    fn packed(pack: Pack, columns: usize) -> Self {
        let model = Self { dir: tempfile::tempdir().unwrap() };
        let plain = model.path("plain");
        fs::create_dir(&plain).unwrap();
        let shape = [64, columns];
        let matrix = |name, seed| (name, Dtype::BF16, &shape[..], normal(64 * columns, 0.02, seed));
        write(&plain.join("a.safetensors"), &[matrix("w", 1), matrix("v", 2)]);
        write(&plain.join("b.safetensors"), &[matrix("w", 3), ("b", Dtype::U8, &[5], vec![1; 5])]);
        fs::write(plain.join("config.json"), "{\"vocab_size\": 40}").unwrap();
        fs::write(plain.join("tokenizer.json"), "{\"a\": 1}").unwrap();
        pack(&Job { from: &plain, to: &model.path("packed"), verify: true }, &|_| ()).unwrap();
        let shard = fs::read(model.path("packed/a.safetensors")).unwrap();
        let matrix =
            safetensors::SafeTensors::deserialize(&shard).unwrap().tensor("w").unwrap().data().to_vec();
        assert_eq!(Tight::open(&matrix).is_ok(), columns == 128, "the layout");
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
fn changed_folders_are_refused() {
    let (count, seed) = (setting("BUDDY_DAMAGE", 300), setting("BUDDY_DAMAGE_SEED", 1));
    for (layout, pack, columns) in LAYOUTS {
        let model = Model::packed(pack, columns);
        let packed = files(&model.path("packed"));
        let names: Vec<&String> = packed.keys().collect();
        let mut unchanged = 0;
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
            let same = files(&changed) == packed;
            let accepted = model.accepts(&changed, &format!("{number} of seed {seed}: {about}"));
            assert_eq!(accepted, same, "{layout}, {number} of seed {seed}: {about}");
            unchanged += u64::from(same);
        }
        println!("{count} {layout} folders: {} refused, {unchanged} unchanged", count - unchanged);
        assert!(unchanged * 10 < count, "only {} folders were changed", count - unchanged);
    }
}

#[test]
fn changed_files_are_refused() {
    let (count, seed) = (setting("BUDDY_DAMAGE", 300), setting("BUDDY_DAMAGE_SEED", 1));
    for (layout, pack, columns) in LAYOUTS {
        let model = Model::packed(pack, columns);
        let (changed, out) = (model.path("changed.safetensors"), model.path("out.safetensors"));
        let (packed, plain) =
            ["packed", "plain"].map(|name| fs::read(model.path(name).join("a.safetensors")).unwrap()).into();
        let mut unchanged = 0;
        for number in 0..count {
            let mut bytes = packed.clone();
            let about = spoil(&mut bytes, &mut Noise(seed.wrapping_mul(1 << 32) + 2 * number + 1));
            fs::write(&changed, &bytes).unwrap();
            let (accepted, same) = (go(&changed, &out).is_ok(), bytes == packed);
            assert_eq!(accepted, same, "{layout}, {number} of seed {seed}: {about}");
            assert!(!accepted || fs::read(&out).unwrap() == plain, "{layout}, {number}: {about}");
            unchanged += u64::from(same);
        }
        println!("{count} {layout} files: {} refused, {unchanged} unchanged", count - unchanged);
    }
}

#[test]
fn every_single_bit_flip_of_a_packed_file_is_refused() {
    for (layout, pack, columns) in LAYOUTS {
        let dir = tempfile::tempdir().unwrap();
        let [plain, packed, out] =
            ["plain", "packed", "out"].map(|name| dir.path().join(format!("{name}.safetensors")));
        let shape = [64, columns];
        let matrix = ("w", Dtype::BF16, &shape[..], normal(64 * columns, 0.02, 1));
        write(&plain, &[matrix, ("b", Dtype::U8, &[5], vec![1; 5])]);
        pack(&Job { from: &plain, to: &packed, verify: true }, &|_| ()).unwrap();
        let (bytes, file) =
            (fs::read(&packed).unwrap(), fs::File::options().write(true).open(&packed).unwrap());
        for bit in 0..8 * bytes.len() {
            let at = bit / 8;
            file.write_all_at(&[bytes[at] ^ 1 << (bit % 8)], at as u64).unwrap();
            let found = verify(&packed, &|_| ());
            assert!(found.is_err(), "bit {bit} of a {layout} file gives {found:?}");
            if at % 16 == bit % 8 {
                assert!(verify_shards(std::slice::from_ref(&packed), &|_| ()).is_err(), "bit {bit} loads");
                assert!(go(&packed, &out).is_err(), "bit {bit} unpacks");
            }
            file.write_all_at(&bytes[at..=at], at as u64).unwrap();
        }
        println!("{} bits of a {layout} file", 8 * bytes.len());
        go(&packed, &out).unwrap();
        assert_eq!(fs::read(&out).unwrap(), fs::read(&plain).unwrap());
    }
}

#[test]
fn single_bit_flips_of_any_file_of_a_packed_folder_are_refused() {
    for (layout, pack, columns) in LAYOUTS {
        let model = Model::packed(pack, columns);
        for (name, bytes) in files(&model.path("packed")) {
            let changed = model.copy();
            let step = (bytes.len() / 60).max(1);
            for at in (0..bytes.len()).step_by(step) {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << (at % 8);
                fs::write(changed.join(&name), flipped).unwrap();
                let found = verify(&changed, &|_| ());
                assert!(found.is_err(), "byte {at} of {name} ({layout}) gives {found:?}");
                assert!(!model.accepts(&changed, &name), "byte {at} of {name} unpacks");
                // Loaders read the configuration and the shards.
                let shards = ["a.safetensors", "b.safetensors"].map(|name| changed.join(name));
                let loads = verify_shards(&shards, &|_| ()).is_ok();
                assert_eq!(loads, name == "tokenizer.json", "byte {at} of {name} loads");
            }
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
