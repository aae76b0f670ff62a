//! Readers of stored files: packed models, plans and results of sweeps, logs of watched programs.

use std::{collections::HashSet, fs, path::Path};

use buddy_codec::CodecKind;
use buddy_inject::{parse, report};
use buddy_model::{Job, unpack, unpack_file, verify_file};
use buddy_profile::{Measured, Tried};
use buddy_record::Record;
use buddy_sweep::{Key, Outcome, Plan, Points, Store};

/// Limit of checked points; a few bytes of a plan may describe millions.
const MOST_POINTS: usize = 1000;

/// A packed file gives an error, or exactly the file that was packed.
pub(crate) fn packed(bytes: &[u8], dir: &Path) -> bool {
    let (from, to) = (dir.join("packed.safetensors"), dir.join("plain.safetensors"));
    fs::write(&from, bytes).unwrap();
    let Ok(sizes) = unpack_file(&from, &to, &|_| ()) else { return false };
    assert_eq!(sizes.plain, fs::metadata(&to).unwrap().len());
    verify_file(&to, &from, &|_| ()).unwrap();
    true
}

/// A packed file with checksums gives an error, or the file that was packed.
pub(crate) fn packed_model(bytes: &[u8], dir: &Path) -> bool {
    let accepted = packed(bytes, dir);
    let plain = fs::read(dir.join("plain.safetensors"));
    assert!(!accepted || buddy_core::checksum(&plain.unwrap()) == PLAIN, "other bytes were accepted");
    accepted
}

/// The CRC-32 of the file that the golden packed models were made from.
const PLAIN: u32 = 0x8360_3611;

/// Opens a packed folder of version 1 with another description.
pub(crate) fn packed_folder_1(bytes: &[u8], dir: &Path) -> bool {
    described(bytes, "model-1", dir)
}

/// Opens a packed folder with another description.
pub(crate) fn packed_folder(bytes: &[u8], dir: &Path) -> bool {
    described(bytes, "model-2", dir)
}

fn described(bytes: &[u8], honest: &str, dir: &Path) -> bool {
    let (from, to) = (dir.join("from"), dir.join("to"));
    fs::create_dir_all(&from).unwrap();
    let honest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/versions").join(honest);
    for name in ["model.safetensors", "config.json"] {
        fs::copy(honest.join(name), from.join(name)).unwrap();
    }
    fs::write(from.join("buddy.json"), bytes).unwrap();
    let done = unpack(&Job { from: &from, to: &to, verify: false }, &|_| ());
    assert!(fs::read_dir(dir).unwrap().count() <= 2, "nothing is written outside the folder");
    done.is_ok_and(|report| report.files == 1)
}

/// A plan is rejected, or each of its points has a unique key.
pub(crate) fn plan(text: &str) -> bool {
    let Ok(plan) = Plan::parse(text) else { return false };
    if plan.size() > MOST_POINTS {
        return true;
    }
    let cases = plan.cases().count();
    let Ok(points) = Points::of(plan) else { return false };
    let digests: HashSet<u128> = (0..points.len()).map(|point| points.digest(point)).collect();
    assert!(digests.len() == points.len() && points.len() <= cases);
    true
}

/// A stored result is accepted only complete and under its own inputs.
pub(crate) fn point(bytes: &[u8], dir: &Path) -> bool {
    let honest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/versions/sweep-point-1.json");
    let inputs = Record::<Outcome>::from_json(&fs::read_to_string(honest).unwrap()).unwrap().spec;
    let (store, key) = (Store::open(dir).unwrap(), Key { name: "point".to_owned(), inputs });
    fs::write(store.path(&key), bytes).unwrap();
    // Results of other builds are recomputed, so the store never returns this one.
    assert!(store.load::<Outcome>(&key).is_none());
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let Ok(record) = Record::<Outcome>::from_json(text) else { return false };
    assert!(record.data.capacity.is_none_or(|ratio| ratio > 0.0 && ratio <= 16.0));
    assert!(record.data.overflow.is_none_or(|share| (0.0..=1.0).contains(&share)));
    true
}

/// The log of a watched process gives an error or the record of a run, which must be valid.
pub(crate) fn log(text: &str) -> bool {
    let Ok(watched) = parse(text) else { return false };
    assert!(!report(&watched).is_empty() && !watched.accesses_json().is_empty());
    let Some(record) = watched.record() else { return false };
    let tried = Tried { kinds: vec![CodecKind::Bpc], auto: true, threshold: 0.3 };
    record.validate().is_ok() && Measured::from_record(&record, &tried).is_ok()
}
