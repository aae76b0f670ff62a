//! A model goes in and comes out: every byte, and an error for everything that is no model.

mod common;

use std::{fs, path::Path};

use buddy_codec::{Frozen, freeze, samples::Noise, seal};
use buddy_core::Target;
use buddy_model::{Error, Job, Report, pack, pack_tight, unpack, verify, verify_file};
use common::{files, normal, write};
use safetensors::{Dtype, SafeTensors};

/// A small model of two shards, with matrices of all kinds and things that are none.
fn model(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    write(
        &folder.join("model-00001-of-00002.safetensors"),
        &[
            ("embed.weight", Dtype::BF16, &[1000, 128], normal(128_000, 0.02, 1)),
            ("odd.weight", Dtype::BF16, &[7, 33], normal(7 * 33, 0.02, 2)),
            ("experts.weight", Dtype::BF16, &[3, 40, 64], normal(3 * 40 * 64, 0.5, 3)),
            ("norm.weight", Dtype::BF16, &[128], normal(128, 1.0, 4)),
            ("noise.weight", Dtype::BF16, &[64, 64], noise(2 * 64 * 64)),
            ("zeros.weight", Dtype::BF16, &[160, 64], vec![0; 2 * 160 * 64]),
        ],
    );
    write(
        &folder.join("model-00002-of-00002.safetensors"),
        &[
            ("head.weight", Dtype::BF16, &[333, 1024], normal(333 * 1024, 1e-4, 5)),
            ("steps", Dtype::I64, &[3], vec![7; 24]),
            ("mask", Dtype::U8, &[5], vec![1; 5]),
        ],
    );
    fs::write(folder.join("config.json"), "{\n  \"vocab_size\": 1000,   \"a\": 1e-05}").unwrap();
    fs::write(folder.join("tokenizer.json"), "{}").unwrap();
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut noise = Noise(99);
    (0..bytes).map(|_| noise.next() as u8).collect()
}

fn job(from: &Path, to: &Path) -> Result<Report, Error> {
    pack(&Job { from, to, verify: true }, &|_| ())
}

#[test]
fn every_byte_of_every_file_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let [plain, packed, back] = ["plain", "packed", "back"].map(|name| folder.path().join(name));
    model(&plain);
    let report = job(&plain, &packed).unwrap();
    assert_eq!((report.files, report.resumed), (2, 0));
    assert!((report.sizes.packed as f64) < 0.79 * report.sizes.plain as f64, "{report:?}");
    unpack(&Job { from: &packed, to: &back, verify: false }, &|_| ()).unwrap();
    assert_eq!(files(&back), files(&plain));
}

#[test]
fn tight_models_are_smaller_and_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let [plain, packed, tight, back] =
        ["plain", "packed", "tight", "back"].map(|name| folder.path().join(name));
    model(&plain);
    let frozen = job(&plain, &packed).unwrap().sizes.packed;
    let report = pack_tight(&Job { from: &plain, to: &tight, verify: true }, &|_| ()).unwrap();
    assert!(report.sizes.packed < frozen, "{report:?}, frozen {frozen}");
    assert_eq!(verify(&tight, &|_| ()).unwrap().unchecked, 0);
    unpack(&Job { from: &tight, to: &back, verify: false }, &|_| ()).unwrap();
    assert_eq!(files(&back), files(&plain));
}

#[test]
fn a_packed_file_is_a_safetensors_file_of_frozen_buffers() {
    let folder = tempfile::tempdir().unwrap();
    let [plain, packed] = ["plain", "packed"].map(|name| folder.path().join(name));
    model(&plain);
    job(&plain, &packed).unwrap();
    let name = "model-00001-of-00002.safetensors";
    let (before, after) = (fs::read(plain.join(name)).unwrap(), fs::read(packed.join(name)).unwrap());
    let (before, (length, metadata)) =
        (SafeTensors::deserialize(&before).unwrap(), SafeTensors::read_metadata(&after).unwrap());
    assert_eq!((8 + length) % 128, 0, "frozen buffers begin at multiples of 128 bytes of the file");
    assert_eq!(metadata.metadata().as_ref().unwrap()["format"], "pt");
    let after = SafeTensors::deserialize(&after).unwrap();
    for (tensor, row) in [("embed.weight", 2), ("experts.weight", 1), ("zeros.weight", 1)] {
        let (plain, packed) = (before.tensor(tensor).unwrap(), after.tensor(tensor).unwrap());
        assert_eq!(packed.dtype(), Dtype::U8, "{tensor}");
        let frozen = Frozen::open(packed.data()).unwrap();
        let header = frozen.header();
        let mut same = freeze(&header.codec, Target::X4Over3, row, plain.data()).unwrap();
        seal(&mut same).unwrap();
        assert!(packed.data() == same, "{tensor} is what freezing it at once gives");
    }
    for tensor in ["odd.weight", "norm.weight", "noise.weight"] {
        assert_eq!(after.tensor(tensor).unwrap(), before.tensor(tensor).unwrap(), "{tensor} is as it was");
    }
}

#[test]
fn a_packed_file_is_packed_again_only_if_its_original_changed() {
    let folder = tempfile::tempdir().unwrap();
    let [plain, packed] = ["plain", "packed"].map(|name| folder.path().join(name));
    model(&plain);
    job(&plain, &packed).unwrap();
    let again = job(&plain, &packed).unwrap();
    assert_eq!((again.files, again.resumed), (0, 2));
    fs::remove_file(packed.join("model-00001-of-00002.safetensors")).unwrap();
    write(
        &plain.join("model-00002-of-00002.safetensors"),
        &[
            ("head.weight", Dtype::BF16, &[333, 1024], normal(333 * 1024, 1e-4, 6)),
            ("steps", Dtype::I64, &[3], vec![7; 24]),
            ("mask", Dtype::U8, &[5], vec![1; 5]),
        ],
    );
    let again = job(&plain, &packed).unwrap();
    assert_eq!((again.files, again.resumed), (2, 0));
}

#[test]
fn damage_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let [plain, packed] = ["plain.safetensors", "packed.safetensors"].map(|name| folder.path().join(name));
    write(&plain, &[("w", Dtype::BF16, &[64, 128], normal(64 * 128, 0.02, 1))]);
    job(&plain, &packed).unwrap();
    let mut bytes = fs::read(&packed).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::write(&packed, bytes).unwrap();
    let found = verify_file(&plain, &packed, &|_| ()).unwrap_err().to_string();
    assert!(found.contains("match its checksum"), "{found}");
}

#[test]
fn models_without_bf16_matrices_are_rejected_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let [plain, packed] = ["plain.safetensors", "packed.safetensors"].map(|name| folder.path().join(name));
    let refusal = |tensors: &[(&str, Dtype, &[usize], Vec<u8>)]| {
        write(&plain, tensors);
        job(&plain, &packed).unwrap_err().to_string()
    };
    let half = refusal(&[("w", Dtype::F16, &[64, 64], vec![0; 8192])]);
    assert!(half.contains("no tensor here is a bf16 matrix") && half.contains("1 of f16"), "{half}");
    assert!(!packed.exists());
    write(&plain, &[("w", Dtype::BF16, &[64, 64], normal(4096, 0.02, 1))]);
    job(&plain, &packed).unwrap();
    let twice = job(&packed, &plain).unwrap_err().to_string();
    assert!(twice.contains("packed already"), "{twice}");
    let same = job(&plain, &plain).unwrap_err().to_string();
    assert!(same.contains("written over itself"), "{same}");
    let gguf = folder.path().join("model.gguf");
    let missing = job(&gguf, &packed).unwrap_err().to_string();
    assert!(missing.contains("there is no such file"), "{missing}");
    fs::write(&gguf, "GGUF").unwrap();
    let other = job(&gguf, &packed).unwrap_err().to_string();
    assert!(other.contains("no .safetensors file"), "{other}");
    let not = unpack(&Job { from: &plain, to: &packed, verify: false }, &|_| ()).unwrap_err().to_string();
    assert!(not.contains("not packed by Buddy"), "{not}");
}

#[test]
fn a_quantised_model_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [plain, packed] = ["plain", "packed"].map(|name| folder.path().join(name));
    model(&plain);
    fs::write(plain.join("config.json"), r#"{"quantization_config": {"quant_method": "fp8"}}"#).unwrap();
    let found = job(&plain, &packed).unwrap_err().to_string();
    assert!(found.contains("quantised (fp8)"), "{found}");
}

/// Every byte of a small packed file changed, one at a time, and every truncation: a file or an
/// error, and never a panic.
#[test]
fn any_damage_gives_a_file_or_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let [plain, packed, back] =
        ["plain.safetensors", "packed.safetensors", "back"].map(|name| folder.path().join(name));
    write(
        &plain,
        &[("w", Dtype::BF16, &[64, 64], normal(4096, 0.02, 1)), ("b", Dtype::U8, &[2], vec![1, 2])],
    );
    job(&plain, &packed).unwrap();
    let bytes = fs::read(&packed).unwrap();
    let mut refused = 0;
    for at in (0..bytes.len()).filter(|at| *at < 500 || at % 31 == 0) {
        for damage in [bytes[at] ^ 1, b'9', 0xff] {
            let mut bytes = bytes.clone();
            bytes[at] = damage;
            fs::write(&packed, bytes).unwrap();
            refused += u32::from(unpack(&Job { from: &packed, to: &back, verify: false }, &|_| ()).is_err());
        }
    }
    for length in (0..bytes.len()).step_by(301) {
        fs::write(&packed, &bytes[..length]).unwrap();
        unpack(&Job { from: &packed, to: &back, verify: false }, &|_| ()).unwrap_err();
    }
    assert!(refused > 100, "only {refused} were refused");
}
