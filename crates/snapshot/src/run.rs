//! Reads a run: a directory with `run.json` and a `.safetensors` file per snapshot, or a directory
//! of raw dumps.

use std::{
    collections::HashMap,
    path::{Component, Path, PathBuf},
};

use buddy_core::Dtype;
use buddy_record::{AllocationInfo, RunInfo};

use crate::{Array, Error, Pattern, dumps::Dumps, open, open_raw};

/// The file that makes a directory a run.
pub(crate) const RUN_FILE: &str = "run.json";

/// A run on disk, checked for completeness when it was opened.
#[derive(Debug, Clone)]
pub struct Run {
    dir: PathBuf,
    info: RunInfo,
    /// Present if there is no `run.json`.
    dumps: Option<Dumps>,
}

impl Run {
    /// Opens a run and checks every snapshot's headers. Without `run.json` the directory is taken
    /// as dumps, and a file of arrays as a run of one snapshot.
    ///
    /// # Errors
    /// If the directory is not a run, or a snapshot lacks an allocation, has an extra one, or has
    /// one of another length or type.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        Self::open_dumps(dir, None, None)
    }

    /// Opens a run; for dumps, `pattern` interprets their names, and `dtype` is the type of those
    /// that state none.
    ///
    /// # Errors
    /// As for [`Run::open`].
    pub fn open_dumps(dir: &Path, pattern: Option<&Pattern>, dtype: Option<Dtype>) -> Result<Self, Error> {
        let run = Self::describe(dir, pattern, dtype).map_err(|error| error.at(dir.display()))?;
        for snapshot in 0..run.info.snapshots.len() {
            run.snapshot(snapshot)?;
        }
        Ok(run)
    }

    fn describe(dir: &Path, pattern: Option<&Pattern>, dtype: Option<Dtype>) -> Result<Self, Error> {
        let path = dir.join(RUN_FILE);
        let (info, dumps) = if path.exists() {
            (read_info(&path)?, None)
        } else {
            let dumps = match dir.is_dir() {
                true => Dumps::find(dir, pattern, dtype)?,
                false => Dumps::of_files(dir, dtype, "")?,
            };
            (dumps.describe(dir)?, Some(dumps))
        };
        info.validate()?;
        Ok(Self { dir: dir.to_owned(), info, dumps })
    }

    /// Returns a message about the interpretation of dump names; `None` for a run with
    /// `run.json`, or for one file.
    pub fn note(&self) -> Option<String> {
        let how = self.dumps.as_ref().map(|dumps| dumps.how).filter(|how| !how.is_empty())?;
        let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let (snapshots, allocations) = (self.info.snapshots.len(), self.info.allocations.len());
        Some(format!("{how}: {} of {}", count(snapshots, "snapshot"), count(allocations, "allocation")))
    }

    /// Returns the run's description.
    pub fn info(&self) -> &RunInfo {
        &self.info
    }

    /// Reads the arrays of a snapshot, in the order of the run's allocations.
    ///
    /// # Errors
    /// As for [`Run::open`], if the files have changed since.
    ///
    /// # Panics
    /// If the run has no such snapshot.
    pub fn snapshot(&self, index: usize) -> Result<Vec<Array>, Error> {
        let file = self.info.snapshots[index].file.as_deref().unwrap_or_default();
        let path = self.dir.join(plain(file).map_err(|error| error.at(self.dir.display()))?);
        let arrays = match &self.dumps {
            Some(dumps) => dumps.read(index)?,
            None if path.is_dir() => {
                self.info.allocations.iter().map(|one| dumped(&path, one)).collect::<Result<_, _>>()?
            }
            None => open(&path, None)?,
        };
        in_order(&self.info.allocations, arrays).map_err(|error| error.at(path.display()))
    }
}

fn read_info(path: &Path) -> Result<RunInfo, Error> {
    let text = buddy_core::read_text(path)?;
    serde_json::from_str(&text).map_err(|error| Error::format(RUN_FILE, error.to_string()))
}

/// Returns a snapshot's file name; it must be in the run's directory.
fn plain(file: &str) -> Result<&str, Error> {
    match Path::new(file).components().collect::<Vec<_>>()[..] {
        [Component::Normal(_) | Component::CurDir] => Ok(file),
        _ => {
            Err(Error::format(RUN_FILE, format!("{file:?} is not the name of a file in the run's directory")))
        }
    }
}

/// Reads an allocation from its own file.
fn dumped(dir: &Path, allocation: &AllocationInfo) -> Result<Array, Error> {
    let path = dir.join(allocation.name.replace('/', "_"));
    let mut arrays = open_raw(&path, Some(allocation.dtype))?;
    let mut array = arrays.pop().ok_or_else(|| Error::Missing(allocation.name.clone()))?;
    array.name.clone_from(&allocation.name);
    Ok(array)
}

/// Sorts arrays in the order of the allocations, and checks them.
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
