//! Finished records in a directory, found by their inputs.
//!
//! A record's name ends in the digest of its [key](Key), and its `spec` holds the inputs. It is
//! written to a temporary file, renamed, and ends in a checksum. There is no lock, which a shared
//! file system might break; two writers of one record leave one file. Killed work continues where
//! it stopped, and a change of scale, seed or program starts afresh.

use std::{
    collections::HashSet,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use buddy_core::read_text;
use buddy_record::{Record, RecordKind};
use buddy_scenario::TOOL;
use buddy_snapshot::write_atomic;
use serde_json::Value;

use crate::{Error, Key};

/// Records in a directory that many processes on many machines may share.
#[derive(Debug, Clone)]
pub struct Store {
    dir: PathBuf,
}

impl Store {
    /// Opens a directory; creates it if missing.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        fs::create_dir_all(dir).map_err(Error::store(dir))?;
        Ok(Self { dir: dir.to_owned() })
    }

    /// Returns the directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the path of a record.
    pub fn path(&self, key: &Key) -> PathBuf {
        self.dir.join(format!("{}-{:032x}.json", key.name, key.digest()))
    }

    /// Returns whether a record's file exists; only [`load`](Self::load) checks that it is
    /// complete.
    pub fn has(&self, key: &Key) -> bool {
        self.path(key).exists()
    }

    /// Loads a record if it exists, is complete, and has the same inputs.
    pub fn load<T: RecordKind>(&self, key: &Key) -> Option<Record<T>> {
        let text = read_text(&self.path(key)).ok()?;
        let record = Record::from_json(&text).ok()?;
        (record.spec == key.inputs && record.tool == TOOL).then_some(record)
    }

    /// Saves a result atomically.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn save<T: RecordKind>(&self, key: &Key, data: T) -> Result<Record<T>, Error> {
        let mut record = Record::new(data);
        record.tool = TOOL.to_owned();
        record.spec = key.inputs.clone();
        record.seed = key.inputs.get("seed").and_then(Value::as_u64);
        let path = self.path(key);
        let parent = path.parent().unwrap_or(&self.dir);
        fs::create_dir_all(parent).map_err(Error::store(parent))?;
        write_atomic(&path, |out| out.write_all(record.to_json_line().as_bytes()))?;
        Ok(record)
    }

    /// Removes a record if it exists, so that an incomplete one is made again.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn remove(&self, key: &Key) -> Result<(), Error> {
        let path = self.path(key);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::store(path)(error)),
            _ => Ok(()),
        }
    }

    /// Returns the digests of all points with a file, from the file names alone.
    pub fn points(&self) -> HashSet<u128> {
        let inside =
            |dir: PathBuf| fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
        let files = inside(self.dir.join("points")).flat_map(inside);
        files.filter_map(|path| digest_in(path.file_name()?.to_str()?)).collect()
    }
}

/// Parses the digest in the name of a point's file.
fn digest_in(name: &str) -> Option<u128> {
    let digest = name.strip_prefix("point-")?.strip_suffix(".json")?;
    (digest.len() == 32).then(|| u128::from_str_radix(digest, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use buddy_record::Figure;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_record_is_found_by_its_inputs_alone() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("records")).unwrap();
        let key = |bytes: u64| Key { name: "program-cg".to_owned(), inputs: json!({"bytes": bytes}) };
        assert!(store.load::<Figure>(&key(1)).is_none() && !store.has(&key(1)));
        let saved = store.save(&key(1), Figure::default()).unwrap();
        assert_eq!(store.load::<Figure>(&key(1)), Some(saved));
        assert!(store.load::<Figure>(&key(2)).is_none());
        store.remove(&key(1)).unwrap();
        store.remove(&key(1)).unwrap();
        assert!(!store.has(&key(1)));
    }

    #[test]
    fn broken_records_are_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let key = Key { name: "x".to_owned(), inputs: json!(1) };
        store.save(&key, Figure::default()).unwrap();
        let whole = fs::read_to_string(store.path(&key)).unwrap();
        for broken in
            [whole[..40].to_owned(), whole.replace("\"name\":\"\"", "\"name\":\"x\""), String::new()]
        {
            assert_ne!(broken, whole);
            fs::write(store.path(&key), broken).unwrap();
            assert!(store.load::<Figure>(&key).is_none());
        }
    }

    #[test]
    fn many_writers_of_one_point_leave_one_record_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let key = Key::point("{\"a\":1}");
        let write = || (0..50).for_each(|_| drop(store.save(&key, Figure::default()).unwrap()));
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(write))));
        assert_eq!(store.points(), HashSet::from([key.digest()]));
        assert!(store.load::<Figure>(&key).is_some());
        assert_eq!(fs::read_dir(store.path(&key).parent().unwrap()).unwrap().count(), 1);
    }
}
