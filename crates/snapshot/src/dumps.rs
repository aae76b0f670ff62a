//! Raw dumps in a directory, read as a run.
//!
//! Every file is an allocation, named as the file; an extension that is a type's name, as in `velocity.f64`,
//! gives the type of its elements. A directory of files is one snapshot; a directory of directories
//! `snapshot-0`, `snapshot-1`, ... is one snapshot for each, in the order of the numbers. Hidden files do not
//! count.

use std::{
    fs,
    path::{Path, PathBuf},
};

use buddy_core::{AllocationInfo, Dtype, RunInfo, SnapshotInfo};
use serde_json::Map;

use crate::{Array, Error, open};

/// The run that the dumps under `dir` are.
pub(crate) fn describe(dir: &Path) -> Result<RunInfo, Error> {
    let (dirs, files): (Vec<PathBuf>, Vec<PathBuf>) = list(dir)?.into_iter().partition(|path| path.is_dir());
    let snapshots = match (dirs.is_empty(), files.is_empty()) {
        (true, true) => return Err(Error::NoRun),
        (true, false) => vec![(0, ".".to_owned())],
        (false, true) => numbered(&dirs)?,
        (false, false) => return Err(Error::MixedDumps),
    };
    let allocations = read(&dir.join(&snapshots[0].1))?.iter().map(allocation).collect();
    let program = dir.file_name().unwrap_or_default().to_string_lossy();
    let mut info = RunInfo::new(&program, Map::new(), allocations);
    let snapshot = |(step, file)| SnapshotInfo { step, label: String::new(), file: Some(file) };
    info.snapshots = snapshots.into_iter().map(snapshot).collect();
    Ok(info)
}

/// The arrays of one snapshot's directory.
pub(crate) fn read(dir: &Path) -> Result<Vec<Array>, Error> {
    let mut arrays = Vec::new();
    for path in list(dir).map_err(|error| error.at(dir.display()))? {
        let dtype = path.extension().and_then(|extension| extension.to_str()?.parse::<Dtype>().ok());
        arrays.extend(open(&path, dtype)?);
    }
    if arrays.is_empty() { Err(Error::NoArrays.at(dir.display())) } else { Ok(arrays) }
}

fn allocation(array: &Array) -> AllocationInfo {
    let (name, dtype) = (array.name.clone(), array.dtype);
    AllocationInfo { name, call_site: String::new(), base: 0, bytes: array.bytes().len() as u64, dtype }
}

/// What a directory holds, sorted by name, without hidden files.
fn list(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut paths = fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, Error>>()?;
    paths.retain(|path| !path.file_name().unwrap_or_default().to_string_lossy().starts_with('.'));
    paths.sort();
    Ok(paths)
}

/// Directories `snapshot-N` by N, which counts as the step.
fn numbered(dirs: &[PathBuf]) -> Result<Vec<(u64, String)>, Error> {
    let number = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let step = name.strip_prefix("snapshot-").and_then(|digits| digits.parse().ok());
        step.map(|step| (step, name.clone())).ok_or(Error::Stray(name))
    };
    let mut snapshots = dirs.iter().map(number).collect::<Result<Vec<_>, _>>()?;
    snapshots.sort();
    Ok(snapshots)
}
