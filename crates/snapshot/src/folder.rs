//! The files of arrays of a path: a file itself, the shards of a model's index, or the files of a
//! folder.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use buddy_core::Dtype;
use buddy_record::Skipped;
use serde::Deserialize;

use crate::{Error, zarr};

/// Suffix of a shard index.
pub(crate) const INDEX: &str = ".safetensors.index.json";

/// Extensions of files of arrays, by priority: a folder's files of the first kind present are read,
/// since a model's folder often has the same weights twice.
const KINDS: [&[&str]; 4] =
    [&["safetensors"], &["gguf"], &["pt", "pth", "bin"], &["npy", "npz", "h5", "hdf5", "nc", "nc4"]];

/// Extensions of raw dumps, beside the names of element types. They are read if a folder has none of
/// [`KINDS`].
const DUMPS: [&str; 3] = ["dat", "raw", "dump"];

/// Extensions of files that lie beside arrays and hold none.
const BESIDE: [&str; 19] = [
    "json", "txt", "md", "model", "py", "jinja", "yaml", "yml", "toml", "csv", "log", "png", "jpg", "pdf",
    "html", "sh", "c", "lock", "part",
];

/// Lists the files of `path`. A folder stands for its files of arrays (not for those of
/// subfolders), an index for its shards, a Zarr store for itself.
///
/// # Errors
/// If the folder holds no file of arrays, or a shard is missing.
pub fn array_files(path: &Path) -> Result<Vec<PathBuf>, Error> {
    array_files_and_left(path).map(|(files, _)| files)
}

/// Returns the files that `path` means, and those of a folder that are left.
///
/// # Errors
/// As [`array_files`].
pub fn array_files_and_left(path: &Path) -> Result<(Vec<PathBuf>, Vec<Skipped>), Error> {
    let files = if path.is_dir() && zarr::is_store(path) {
        return Ok((vec![path.to_owned()], Vec::new()));
    } else if path.is_dir() {
        in_folder(path)
    } else if path.to_string_lossy().ends_with(INDEX) {
        shards(path)
    } else {
        return Ok((vec![path.to_owned()], Vec::new()));
    };
    let files = files.map_err(|error| error.at(path.display()))?;
    let left = if path.is_dir() { left(path, &files)? } else { Vec::new() };
    Ok((files, left))
}

/// Lists what a folder holds beside the files that are read, without hidden files and those that
/// never hold arrays.
fn left(dir: &Path, read: &[PathBuf]) -> Result<Vec<Skipped>, Error> {
    let mut paths = fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, Error>>()?;
    paths.sort();
    let extension = |path: &Path| path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    let is_hidden =
        |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
    let kinds: BTreeSet<String> = read.iter().map(|path| format!(".{}", extension(path))).collect();
    let kind = Vec::from_iter(kinds).join(" and ");
    let why = |path: &Path| match path.is_dir() {
        true => "it is a folder in the folder; give it by name".to_owned(),
        false => format!("the {kind} files of the folder are read; give this one by name"),
    };
    paths.retain(|path| {
        let beside =
            path.is_file() && (BESIDE.contains(&extension(path).as_str()) || path.extension().is_none());
        !read.contains(path) && !is_hidden(path) && !beside
    });
    Ok(paths.iter().map(|path| Skipped::new(path.display().to_string(), why(path))).collect())
}

fn in_folder(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut files = fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, Error>>()?;
    files.sort();
    if let Some(index) = files.iter().find(|path| path.to_string_lossy().ends_with(INDEX)) {
        return shards(index);
    }
    let kind = |path: &PathBuf| {
        let extension = path.extension()?.to_str()?.to_lowercase();
        let is_dump = || DUMPS.contains(&extension.as_str()) || extension.parse::<Dtype>().is_ok();
        let kind = KINDS.iter().position(|kind| kind.contains(&extension.as_str()));
        kind.or_else(|| is_dump().then_some(KINDS.len()))
    };
    let first = files.iter().filter_map(kind).min().ok_or(Error::NoArrayFiles)?;
    files.retain(|path| kind(path) == Some(first));
    Ok(files)
}

/// The part of an index that names files.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

fn shards(index: &Path) -> Result<Vec<PathBuf>, Error> {
    let dir = index.parent().unwrap_or(Path::new(""));
    let Index { weight_map } = serde_json::from_str(&fs::read_to_string(index)?)
        .map_err(|error| Error::format("shard index", error.to_string()))?;
    let names: BTreeSet<String> = weight_map.into_values().collect();
    let shard = |name: String| {
        if Path::new(&name).components().count() != 1 || name.contains("..") {
            return Err(Error::format(
                "shard index",
                format!("{name:?} is not the name of a file beside it"),
            ));
        }
        let path = dir.join(&name);
        if path.is_file() { Ok(path) } else { Err(Error::Shard(name)) }
    };
    names.into_iter().map(shard).collect()
}
