//! Finished records in a directory, found by what went into them.
//!
//! A record's name ends in a hash of its inputs, and its `spec` holds them: a record is taken only if they and the
//! build that made it are the same, and its checksum is right. So a run that was killed goes on where it was, and a
//! change of scale, seed or code starts afresh.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use buddy_core::{Record, RecordKind, read_text};
use buddy_scenario::TOOL;
use buddy_snapshot::write_atomic;
use serde_json::Value;

use crate::Error;

/// The records of a study.
#[derive(Debug, Clone)]
pub struct Store {
    dir: PathBuf,
}

/// What a record is of, and everything that decides it.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    /// What it is of, such as `program-cg`.
    pub name: String,
    /// What it was made from.
    pub inputs: Value,
}

impl Store {
    /// Opens a directory, or makes it.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        fs::create_dir_all(dir).map_err(|source| Error::Directory { path: dir.to_owned(), source })?;
        Ok(Self { dir: dir.to_owned() })
    }

    /// Where a record lies.
    pub fn path(&self, key: &Key) -> PathBuf {
        self.dir.join(format!("{}-{:016x}.json", key.name, hash(&key.inputs.to_string())))
    }

    /// A record, if it is there and was made from the same inputs by the same tool.
    pub fn load<T: RecordKind>(&self, key: &Key) -> Option<Record<T>> {
        let text = read_text(&self.path(key)).ok()?;
        let record = Record::from_json(&text).ok()?;
        (record.spec == key.inputs && record.tool == TOOL).then_some(record)
    }

    /// Keeps a result, whole or not at all.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn save<T: RecordKind>(&self, key: &Key, data: T) -> Result<Record<T>, Error> {
        let mut record = Record::new(data);
        record.tool = TOOL.to_owned();
        record.spec = key.inputs.clone();
        record.seed = key.inputs.get("seed").and_then(Value::as_u64);
        write_atomic(&self.path(key), |out| out.write_all(record.to_json_line().as_bytes()))?;
        Ok(record)
    }
}

/// FNV-1a, which is the same everywhere and for ever; equal inputs are compared besides.
pub(crate) fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use buddy_core::Figure;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_record_is_found_by_its_inputs_alone() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("records")).unwrap();
        let key = |bytes: u64| Key { name: "program-cg".to_owned(), inputs: json!({"bytes": bytes}) };
        assert!(store.load::<Figure>(&key(1)).is_none());
        let saved = store.save(&key(1), Figure::default()).unwrap();
        assert_eq!(store.load::<Figure>(&key(1)), Some(saved));
        assert!(store.load::<Figure>(&key(2)).is_none());
    }

    #[test]
    fn what_is_broken_or_of_another_tool_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let key = Key { name: "x".to_owned(), inputs: json!(1) };
        let record = store.save(&key, Figure::default()).unwrap();
        fs::write(store.path(&key), &record.to_json()[..40]).unwrap();
        assert!(store.load::<Figure>(&key).is_none());
        let other = Record { tool: "buddy 0.1.0+another-build".to_owned(), ..record.clone() };
        fs::write(store.path(&key), other.to_json()).unwrap();
        assert!(store.load::<Figure>(&key).is_none());
        let changed = record.to_json().replace("\"title\": \"\"", "\"title\": \"x\"");
        fs::write(store.path(&key), changed).unwrap();
        assert!(store.load::<Figure>(&key).is_none(), "its checksum is another's");
        fs::write(store.path(&key), record.to_json()).unwrap();
        assert!(store.load::<Figure>(&key).is_some());
    }

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash("a"), 0xaf63_dc4c_8601_ec8c);
    }
}
