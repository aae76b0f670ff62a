//! Failed attempts, which tell a point that always fails from one whose job was killed.
//!
//! An attempt creates a file when it starts and removes it on success or interruption. A remaining
//! file holds the error, or is empty if the process was killed. A task with too many of them is
//! given up.

use std::{
    collections::{BTreeMap, hash_map::RandomState},
    fs,
    hash::{BuildHasher, Hasher},
    path::PathBuf,
};

use crate::{Error, Store};

/// Reason for an attempt without a message.
const KILLED: &str = "its process ended without a message: killed, out of memory, or out of time";

/// The attempts of a store.
#[derive(Debug, Clone)]
pub struct Tries {
    dir: PathBuf,
}

/// A running attempt.
#[derive(Debug)]
pub(crate) struct Try {
    path: PathBuf,
}

impl Tries {
    /// Opens the attempts of this store.
    ///
    /// # Errors
    /// If their directory cannot be created.
    pub fn of(store: &Store) -> Result<Self, Error> {
        let dir = store.dir().join("tries");
        fs::create_dir_all(&dir).map_err(Error::store(&dir))?;
        Ok(Self { dir })
    }

    /// Starts an attempt of the task with this digest.
    pub(crate) fn begin(&self, digest: u128) -> Result<Try, Error> {
        let unique = RandomState::new().build_hasher().finish();
        let path = self.dir.join(format!("{digest:032x}.{unique:016x}"));
        fs::write(&path, "").map_err(Error::store(&path))?;
        Ok(Try { path })
    }

    /// Counts the failed or running attempts of each task.
    pub fn counts(&self) -> BTreeMap<u128, u32> {
        let mut counts = BTreeMap::new();
        for (digest, _) in self.files() {
            *counts.entry(digest).or_default() += 1;
        }
        counts
    }

    /// Returns the errors of a task's attempts, without duplicates.
    pub fn words(&self, digest: u128) -> String {
        let of_task = self.files().into_iter().filter(|(other, _)| *other == digest);
        let said = of_task.map(|(_, path)| fs::read_to_string(path).unwrap_or_default());
        let mut words: Vec<String> =
            said.map(|text| if text.is_empty() { KILLED.to_owned() } else { text }).collect();
        words.sort();
        words.dedup();
        words.join("; ")
    }

    /// Removes all attempts, so that tasks that were given up are tried again.
    ///
    /// # Errors
    /// If a file cannot be removed.
    pub fn forget(&self) -> Result<(), Error> {
        self.files().into_iter().try_for_each(|(_, path)| fs::remove_file(&path).map_err(Error::store(path)))
    }

    fn files(&self) -> Vec<(u128, PathBuf)> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let file = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            Some((u128::from_str_radix(name.split_once('.')?.0, 16).ok()?, entry.path()))
        };
        entries.filter_map(file).collect()
    }
}

impl Try {
    /// Removes the attempt after success or interruption.
    pub(crate) fn forget(self) {
        let _ = fs::remove_file(&self.path);
    }

    /// Records the reason of a failure.
    pub(crate) fn failed(self, why: &str) {
        let _ = fs::write(&self.path, why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_and_killed_attempts_are_counted_with_their_errors() {
        let dir = tempfile::tempdir().unwrap();
        let tries = Tries::of(&Store::open(dir.path()).unwrap()).unwrap();
        tries.begin(7).unwrap().forget();
        assert!(tries.counts().is_empty());
        tries.begin(7).unwrap().failed("no such file");
        tries.begin(7).unwrap().failed("no such file");
        drop(tries.begin(7).unwrap());
        tries.begin(8).unwrap().failed("b");
        assert_eq!(tries.counts(), BTreeMap::from([(7, 3), (8, 1)]));
        assert_eq!(tries.words(7), format!("{KILLED}; no such file"));
        tries.forget().unwrap();
        assert!(tries.counts().is_empty());
    }
}
