//! The files of arrays of a path: a file itself, the shards of a model's index, or the files of a
//! folder.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use crate::Error;

/// Suffix of a shard index.
pub(crate) const INDEX: &str = ".safetensors.index.json";

/// Extensions of files of arrays, by priority: a folder's files of the first kind present are read,
/// since a model's folder often has the same weights twice.
const KINDS: [&[&str]; 4] =
    [&["safetensors"], &["gguf"], &["pt", "pth", "bin"], &["npy", "npz", "h5", "hdf5", "nc", "nc4"]];

/// Lists the files of `path`. A folder stands for its files of arrays (not for those of
/// subfolders), an index for its shards.
///
/// # Errors
/// If the folder holds no file of arrays, or a shard is missing.
pub fn array_files(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let files = if path.is_dir() {
        in_folder(path)
    } else if path.to_string_lossy().ends_with(INDEX) {
        shards(path)
    } else {
        return Ok(vec![path.to_owned()]);
    };
    files.map_err(|error| error.at(path.display()))
}

fn in_folder(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut files = fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, Error>>()?;
    files.sort();
    if let Some(index) = files.iter().find(|path| path.to_string_lossy().ends_with(INDEX)) {
        return shards(index);
    }
    let kind = |path: &PathBuf| {
        let extension = path.extension()?.to_str()?.to_lowercase();
        KINDS.iter().position(|kind| kind.contains(&extension.as_str()))
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
