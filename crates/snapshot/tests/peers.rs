//! Our readers against those of the formats: h5py, PyTorch, gguf and safetensors. Their verdicts on
//! valid and damaged files are kept in `data/peers`, which `data/peers.py` writes.
#![allow(missing_docs)]

use std::{collections::BTreeMap, path::Path};

use buddy_snapshot::{Format, read_contents};

/// The checksum of each array that a reader finds; `None` for one that it refuses.
type Found = BTreeMap<String, Option<u32>>;

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/peers")
}

/// Reads a file with our readers.
fn ours(name: &str, bytes: Vec<u8>) -> Option<Found> {
    let format = match name.rsplit('.').next().unwrap() {
        "h5" => Format::Hdf5,
        "pt" => Format::Torch,
        "gguf" => Format::Gguf,
        _ => Format::Safetensors,
    };
    let arrays = read_contents(format, "x", bytes, None).ok()?.arrays;
    let mut found: Vec<(String, u32)> =
        arrays.iter().map(|array| (array.name.clone(), buddy_core::checksum(array.bytes()))).collect();
    if format == Format::Torch {
        // Names of storages differ between readers, so their bytes are compared in order.
        found.sort_by_key(|&(_, sum)| sum);
        found.iter_mut().enumerate().for_each(|(index, (name, _))| *name = index.to_string());
    }
    Some(found.into_iter().map(|(name, sum)| (name, Some(sum))).collect())
}

#[test]
fn no_reader_finds_other_bytes_than_its_peer() {
    let text = std::fs::read_to_string(folder().join("verdicts.json")).unwrap();
    let cases: Vec<(String, Vec<serde_json::Value>, Option<Found>)> = serde_json::from_str(&text).unwrap();
    let mut wrong = Vec::new();
    let mut whole: BTreeMap<String, Found> = BTreeMap::new();
    let (mut accepted, mut refused) = (0, 0);
    for (name, damage, peer) in &cases {
        let mut bytes = std::fs::read(folder().join(name)).unwrap();
        let number = |at: usize| damage[at].as_u64().unwrap() as usize;
        match damage.first().and_then(|kind| kind.as_str()) {
            Some("cut") => bytes.truncate(number(1)),
            Some(_) => bytes[number(1)] ^= 1 << number(2),
            None => {}
        }
        let ours = ours(name, bytes);
        let Some(ours) = ours else {
            refused += 1;
            if damage.is_empty() {
                wrong.push(format!("{name} is refused"));
            }
            continue;
        };
        accepted += 1;
        if damage.is_empty() {
            if Some(&ours) != peer.as_ref() {
                wrong.push(format!("{name}: {ours:?}, its peer {peer:?}"));
            }
            whole.insert(name.clone(), ours);
            continue;
        }
        for (array, sum) in &ours {
            let of_peer = peer.as_ref().and_then(|peer| peer.get(array)).copied().flatten();
            let undamaged = whole[name].get(array).copied().flatten();
            if *sum != of_peer && *sum != undamaged {
                wrong.push(format!("{name} {damage:?} {array}: {sum:?}, its peer {of_peer:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}\nof {} cases", wrong.join("\n"), cases.len());
    assert!(accepted > whole.len() && refused > 100, "{accepted} accepted, {refused} refused");
}
