//! Zarr stores, versions 2 and 3: a folder with metadata, and a file for each chunk of an array.
//!
//! Every array of the store is decoded chunk by chunk into a temporary file, in rows. Chunks that the
//! store does not have are filled with the fill value. Arrays that cannot be read are skipped by
//! name; a damaged chunk is an error. Specifications: zarr-specs.readthedocs.io; the header of Blosc
//! in c-blosc's README_CHUNK_FORMAT.

mod blosc;
mod chunks;
mod codecs;
mod meta;

use std::{
    fs,
    ops::Range,
    path::{Path, PathBuf},
};

use chunks::Chunk;
use meta::{Found, Meta};

use crate::{Array, Contents, Error, Skipped, scratch::Scratch};

/// Files of which one makes a folder a store.
const MARKS: [&str; 4] = ["zarr.json", ".zarray", ".zgroup", ".zmetadata"];
/// Groups in groups that are followed.
const MOST_DEPTH: usize = 32;
/// Most bytes of metadata.
const MOST_META: u64 = 16 << 20;
/// Most bytes of a chunk.
pub(crate) const MOST_CHUNK: usize = 256 << 20;

/// Returns whether a folder is a store, or a group or array of one.
pub(crate) fn is_store(dir: &Path) -> bool {
    MARKS.iter().any(|mark| dir.join(mark).is_file())
}

pub(crate) fn bad(why: impl Into<String>) -> Error {
    Error::format("Zarr", why)
}

/// An array, and the files of its chunks.
struct Stored {
    name: String,
    meta: Meta,
    chunks: Vec<Chunk>,
}

/// Reads every array of a store, and lists the others.
pub(crate) fn read(dir: &Path) -> Result<Contents, Error> {
    let mut walk = Walk::default();
    let name = dir.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    walk.folder(dir, &name, "", 0)?;
    let Walk { stored, mut skipped, bytes } = walk;
    let mut scratch = Scratch::new(bytes);
    let mut decoded = 0u64;
    let mut places: Vec<(Stored, Range<usize>)> = Vec::new();
    'arrays: for array in stored {
        let whole = array.chunks.len() as u64 == array.meta.chunk_count();
        if !whole && array.meta.fill.is_none() {
            skipped.push(Skipped::new(array.name, "it lacks chunks, and its fill value is not read"));
            continue;
        }
        let (range, mut map) =
            scratch.map_zeros(array.meta.bytes()).map_err(|error| error.at(&array.name))?;
        if !whole {
            array.meta.clear(&mut map);
        }
        for chunk in &array.chunks {
            // Chunks may reach past the array, so that they bound what is decoded.
            decoded = decoded.saturating_add(array.meta.chunk_bytes() as u64);
            if decoded > scratch.limit().saturating_mul(4) {
                return Err(Error::Bomb { inflated: decoded, limit: scratch.limit() }.at(&array.name));
            }
            let plain = match chunk.read(&array.meta) {
                Err(Error::Unsupported(what)) => {
                    skipped.push(Skipped::new(array.name, format!("its chunks are packed with {what}")));
                    continue 'arrays;
                }
                plain => plain.map_err(|error| error.at(&chunk.key).at(&array.name))?,
            };
            array.meta.place(&plain, &chunk.at, &mut map);
        }
        places.push((array, range));
    }
    let source = scratch.finish()?;
    let array = |(found, range): (Stored, Range<usize>)| {
        Array::new(found.name, found.meta.dtype, found.meta.shape, &source, range)
    };
    let arrays = places.into_iter().map(array).collect::<Result<_, _>>()?;
    Ok(Contents { arrays, skipped })
}

/// The arrays that were found so far.
#[derive(Default)]
struct Walk {
    stored: Vec<Stored>,
    skipped: Vec<Skipped>,
    /// Bytes of all chunks.
    bytes: u64,
}

impl Walk {
    /// Reads the metadata of a folder: an array, or a group whose folders follow. `root` names the
    /// array if the store is one.
    fn folder(&mut self, dir: &Path, root: &str, path: &str, depth: usize) -> Result<(), Error> {
        if depth == MOST_DEPTH {
            return Err(bad(format!("groups lie more than {MOST_DEPTH} deep")));
        }
        let name = if path.is_empty() { root } else { path };
        match meta::of_folder(dir).map_err(|error| error.at(name))? {
            Found::Array(meta) => return self.array(dir, name, *meta).map_err(|error| error.at(name)),
            Found::Skipped(why) => {
                self.skipped.push(Skipped::new(name, why));
                return Ok(());
            }
            Found::Group => {}
        }
        for (file, below) in list(dir)? {
            let name = if path.is_empty() { file.clone() } else { format!("{path}/{file}") };
            let kind = fs::symlink_metadata(&below)?.file_type();
            if kind.is_dir() {
                self.folder(&below, root, &name, depth + 1)?;
            } else if kind.is_symlink() && below.is_dir() {
                self.skipped.push(Skipped::new(name, "it is a link to a folder"));
            }
        }
        Ok(())
    }

    /// Lists the chunks of an array.
    fn array(&mut self, dir: &Path, name: &str, meta: Meta) -> Result<(), Error> {
        let chunks = chunks::of(dir, &meta)?;
        self.bytes = chunks.iter().fold(self.bytes, |sum, chunk| sum.saturating_add(chunk.bytes));
        self.stored.push(Stored { name: name.to_owned(), meta, chunks });
        Ok(())
    }
}

/// Lists a folder by name, without hidden files.
fn list(dir: &Path) -> Result<Vec<(String, PathBuf)>, Error> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') {
            found.push((name, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}
