//! Reads a run: a directory with `run.json` and a `.safetensors` file per snapshot, or a directory of raw dumps.

use std::{
    collections::HashMap,
    path::{Component, Path, PathBuf},
};

use buddy_core::{AllocationInfo, RunInfo};

use crate::{Array, Error, dumps, open};

/// The file that makes a directory a run.
pub(crate) const RUN_FILE: &str = "run.json";

/// A run on disk, found to be whole when it was opened.
#[derive(Debug, Clone)]
pub struct Run {
    dir: PathBuf,
    info: RunInfo,
}

impl Run {
    /// Opens a run and checks every snapshot's headers. Without `run.json` the directory is taken as raw dumps:
    /// each file an allocation, in the directory itself for one snapshot or in `snapshot-0`, `snapshot-1`, ...
    ///
    /// # Errors
    /// If the directory is no run, or a snapshot lacks an allocation, has one too many, or has one of another
    /// length or type.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let run = Self::describe(dir).map_err(|error| error.at(dir.display()))?;
        for snapshot in 0..run.info.snapshots.len() {
            run.snapshot(snapshot)?;
        }
        Ok(run)
    }

    fn describe(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(RUN_FILE);
        let info = if path.exists() { read_info(&path)? } else { dumps::describe(dir)? };
        info.validate()?;
        Ok(Self { dir: dir.to_owned(), info })
    }

    /// What is known of the run.
    pub fn info(&self) -> &RunInfo {
        &self.info
    }

    /// The arrays of a snapshot, in the order of the run's allocations.
    ///
    /// # Errors
    /// As [`Run::open`], should the files have changed since.
    ///
    /// # Panics
    /// If the run has no such snapshot.
    pub fn snapshot(&self, index: usize) -> Result<Vec<Array>, Error> {
        let file = self.info.snapshots[index].file.as_deref().unwrap_or_default();
        let path = self.dir.join(plain(file).map_err(|error| error.at(self.dir.display()))?);
        let arrays = if path.is_dir() { dumps::read(&path)? } else { open(&path, None)? };
        in_order(&self.info.allocations, arrays).map_err(|error| error.at(path.display()))
    }
}

fn read_info(path: &Path) -> Result<RunInfo, Error> {
    let text = buddy_core::read_text(path)?;
    serde_json::from_str(&text).map_err(|error| Error::format(RUN_FILE, error.to_string()))
}

/// A snapshot's file lies in the run's own directory.
fn plain(file: &str) -> Result<&str, Error> {
    match Path::new(file).components().collect::<Vec<_>>()[..] {
        [Component::Normal(_) | Component::CurDir] => Ok(file),
        _ => {
            Err(Error::format(RUN_FILE, format!("{file:?} is not the name of a file in the run's directory")))
        }
    }
}

/// Brings arrays into the order of the allocations that they must be.
fn in_order(allocations: &[AllocationInfo], arrays: Vec<Array>) -> Result<Vec<Array>, Error> {
    let mut named: HashMap<String, Array> =
        arrays.into_iter().map(|array| (array.name.clone(), array)).collect();
    let ordered = allocations.iter().map(|allocation| {
        let array = named.remove(&allocation.name).ok_or_else(|| Error::Missing(allocation.name.clone()))?;
        matches(allocation, &array).map(|()| array)
    });
    let ordered = ordered.collect::<Result<_, _>>()?;
    match named.into_keys().min() {
        Some(name) => Err(Error::Extra(name)),
        None => Ok(ordered),
    }
}

fn matches(allocation: &AllocationInfo, array: &Array) -> Result<(), Error> {
    let (expected, found) = (allocation.bytes, array.bytes().len() as u64);
    let name = || allocation.name.clone();
    if expected != found {
        return Err(Error::Changed { name: name(), expected, found });
    }
    if allocation.dtype != array.dtype {
        return Err(Error::Retyped { name: name(), expected: allocation.dtype, found: array.dtype });
    }
    Ok(())
}
