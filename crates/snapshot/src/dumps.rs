//! Raw dumps in a directory, read as a run.
//!
//! Every file is an allocation; an extension that names a type, as in `velocity.f64`, gives the
//! element type. Dumps whose names contain a step form a series: numbered directories
//! (`step_00100/`), numbered files (`rho_00100.dat`), or the names of a [`Pattern`]. Hidden files
//! are ignored. A model's folder and a single file are one snapshot.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use buddy_core::Dtype;
use buddy_record::{AllocationInfo, RunInfo, Skipped, SnapshotInfo};
use serde_json::Map;

use crate::{
    Array, Contents, Error, Pattern,
    folder::{INDEX, array_files_and_left},
    open_contents,
    pattern::{DumpName, guess},
    zarr,
};

/// Dumps, sorted into snapshots.
#[derive(Debug, Clone)]
pub(crate) struct Dumps {
    /// The files of each snapshot by allocation.
    snapshots: BTreeMap<u64, BTreeMap<String, PathBuf>>,
    /// Element type of files whose extension names none.
    dtype: Option<Dtype>,
    /// True if the only array of a file keeps its own name, as a model's tensors do.
    own_names: bool,
    /// Files and steps that are left.
    left: Vec<Skipped>,
    /// Message about the interpretation of the names; empty if nothing was guessed.
    pub(crate) how: &'static str,
}

impl Dumps {
    /// Sorts the dumps under `dir`.
    pub(crate) fn find(dir: &Path, pattern: Option<&Pattern>, dtype: Option<Dtype>) -> Result<Self, Error> {
        if zarr::is_store(dir) {
            return Self::of_files(dir, dtype, "a Zarr store");
        }
        let (dirs, files): (Vec<PathBuf>, Vec<PathBuf>) =
            list(dir)?.into_iter().partition(|path| path.is_dir());
        if pattern.is_none() && files.iter().any(|path| is_of_a_model(path)) {
            return Self::of_files(dir, dtype, "the files of a model");
        }
        let mut left = Vec::new();
        let (dump, how) = match (pattern, dirs.is_empty(), files.is_empty()) {
            (_, true, true) => return Err(Error::NoRun),
            (Some(pattern), ..) => by_pattern(dir, &dirs, files, pattern, &mut left)?,
            (None, true, false) => series(&files).unwrap_or_else(|| (single(files), "one snapshot")),
            (None, false, true) => (numbered(&dirs)?, "one directory for each snapshot"),
            (None, false, false) => return Err(Error::MixedDumps),
        };
        let mut snapshots: BTreeMap<u64, BTreeMap<String, PathBuf>> = BTreeMap::new();
        for (DumpName { step, name }, path) in dump {
            if snapshots.entry(step).or_default().insert(name.clone(), path).is_some() {
                return Err(Error::Duplicate(name));
            }
        }
        keep_whole(&mut snapshots, &mut left);
        Ok(Self { snapshots, dtype, own_names: false, left, how })
    }

    /// Creates one snapshot of a file of arrays, or of the files of a model's folder or index.
    pub(crate) fn of_files(path: &Path, dtype: Option<Dtype>, how: &'static str) -> Result<Self, Error> {
        let (files, left) = array_files_and_left(path)?;
        let files = files.into_iter().map(|path| (file_name(&path), path)).collect();
        Ok(Self { snapshots: [(0, files)].into(), dtype, own_names: true, left, how })
    }

    /// Describes the dumps as a run.
    pub(crate) fn describe(&self, dir: &Path) -> Result<RunInfo, Error> {
        let Contents { arrays, skipped } = self.contents(0)?;
        let allocations = arrays.iter().map(allocation).collect();
        let program = dir.file_name().unwrap_or_default().to_string_lossy();
        let mut info = RunInfo::new(&program, Map::new(), allocations);
        let snapshot =
            |&step| SnapshotInfo { step, label: String::new(), file: Some(format!("step {step}")) };
        info.snapshots = self.snapshots.keys().map(snapshot).collect();
        info.skipped = self.left.iter().cloned().chain(skipped).collect();
        Ok(info)
    }

    /// Reads the arrays of a snapshot, by index.
    pub(crate) fn read(&self, index: usize) -> Result<Vec<Array>, Error> {
        self.contents(index).map(|contents| contents.arrays)
    }

    fn contents(&self, index: usize) -> Result<Contents, Error> {
        let mut contents = Contents::default();
        for (name, path) in self.snapshots.values().nth(index).into_iter().flatten() {
            let extension = path.extension().and_then(|extension| extension.to_str()?.parse::<Dtype>().ok());
            let Contents { mut arrays, skipped } = open_contents(path, extension.or(self.dtype))?;
            if let [only] = &mut arrays[..]
                && !self.own_names
            {
                only.name.clone_from(name);
            }
            contents.arrays.extend(arrays);
            contents.skipped.extend(skipped);
        }
        Ok(contents)
    }
}

type Sorted = Vec<(DumpName, PathBuf)>;

/// Returns true for a file that accompanies a model's weights and holds none.
fn is_of_a_model(path: &Path) -> bool {
    let name = file_name(path);
    name == "config.json" || name.ends_with(INDEX)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Makes each file an allocation of one snapshot.
fn single(files: Vec<PathBuf>) -> Sorted {
    files.into_iter().map(|path| (DumpName { step: 0, name: file_name(&path) }, path)).collect()
}

/// Returns the series that all files form, if any: equal digits, and most steps have every
/// allocation.
fn series(files: &[PathBuf]) -> Option<(Sorted, &'static str)> {
    let dump = files.iter().map(|path| guess(&file_name(path))).collect::<Option<Vec<_>>>()?;
    let digits: BTreeSet<usize> = dump.iter().map(|&(_, digits)| digits).collect();
    let mut steps: BTreeMap<u64, BTreeMap<String, PathBuf>> = BTreeMap::new();
    for ((dump, _), path) in dump.iter().zip(files) {
        steps.entry(dump.step).or_default().insert(dump.name.clone(), path.clone());
    }
    if digits.len() != 1 || cut_steps(&steps).is_none() {
        return None;
    }
    let sorted = dump.into_iter().map(|(dump, _)| dump).zip(files.iter().cloned()).collect();
    Some((sorted, "files NAME_STEP, a series (for an allocation each, give --pattern '{name}')"))
}

/// Returns the steps that lack allocations, with the names of these; `None` unless at least two
/// steps have all, and no fewer than lack some.
fn cut_steps(steps: &BTreeMap<u64, BTreeMap<String, PathBuf>>) -> Option<Vec<(u64, String)>> {
    let names: BTreeSet<&String> = steps.values().flat_map(BTreeMap::keys).collect();
    let (whole, cut): (Vec<_>, Vec<_>) = steps.iter().partition(|(_, found)| found.len() == names.len());
    let lacks = |found: &BTreeMap<String, PathBuf>| {
        let missing = names.iter().filter(|name| !found.contains_key(**name));
        missing.map(|name| name.as_str()).collect::<Vec<_>>().join(", ")
    };
    let cut = || cut.iter().map(|(step, found)| (**step, lacks(found))).collect();
    (whole.len() >= 2.max(steps.len() - whole.len())).then(cut)
}

/// Leaves steps that lack an allocation, if they are the minority.
fn keep_whole(steps: &mut BTreeMap<u64, BTreeMap<String, PathBuf>>, left: &mut Vec<Skipped>) {
    for (step, missing) in cut_steps(steps).unwrap_or_default() {
        steps.remove(&step);
        left.push(Skipped::new(format!("step {step}"), format!("it has no dump of {missing}")));
    }
}

/// Sorts the files that match a pattern, here and one directory down.
fn by_pattern(
    dir: &Path,
    dirs: &[PathBuf],
    mut files: Vec<PathBuf>,
    pattern: &Pattern,
    left: &mut Vec<Skipped>,
) -> Result<(Sorted, &'static str), Error> {
    for below in dirs {
        files.extend(list(below)?);
    }
    let relative = |path: &Path| path.strip_prefix(dir).unwrap_or(path).to_string_lossy().into_owned();
    let mut sorted: Sorted = Vec::new();
    for path in files.into_iter().filter(|path| path.is_file()) {
        match pattern.read(&relative(&path)) {
            Some(dump) => sorted.push((dump, path)),
            None => left.push(Skipped::new(path.display().to_string(), "the pattern does not fit its name")),
        }
    }
    if sorted.is_empty() { Err(Error::NoMatch) } else { Ok((sorted, "by the pattern")) }
}

fn allocation(array: &Array) -> AllocationInfo {
    let (name, dtype) = (array.name.clone(), array.dtype);
    AllocationInfo { name, call_site: String::new(), base: 0, bytes: array.bytes().len() as u64, dtype }
}

/// Lists a directory, sorted by name, without hidden files.
fn list(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut paths = fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, Error>>()?;
    if zarr::is_store(dir) {
        return Err(Error::Container { what: "a Zarr store among dumps", remedy: "give it by name" });
    }
    paths.retain(|path| !file_name(path).starts_with('.'));
    paths.sort();
    Ok(paths)
}

/// Sorts directories that end in a number, which is the step.
fn numbered(dirs: &[PathBuf]) -> Result<Sorted, Error> {
    let split = |path: &PathBuf| {
        let name = file_name(path);
        let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
        let step = name[prefix.len()..].parse::<u64>().map_err(|_| Error::Stray(name.clone()))?;
        Ok((prefix, step))
    };
    let steps = dirs.iter().map(split).collect::<Result<Vec<_>, Error>>()?;
    if let Some(other) = steps.iter().position(|(prefix, _)| *prefix != steps[0].0) {
        return Err(Error::Stray(file_name(&dirs[other])));
    }
    let mut sorted = Vec::new();
    for (dir, (_, step)) in dirs.iter().zip(steps) {
        let files = list(dir).map_err(|error| error.at(dir.display()))?;
        if files.is_empty() {
            return Err(Error::NoArrays.at(dir.display()));
        }
        sorted.extend(files.into_iter().map(|path| (DumpName { step, name: file_name(&path) }, path)));
    }
    Ok(sorted)
}
