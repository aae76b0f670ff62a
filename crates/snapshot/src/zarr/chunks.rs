//! The chunks of an array: their files, and their place in the array.

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
};

use super::{bad, list, meta::Meta};
use crate::Error;

/// The file of a chunk.
pub(super) struct Chunk {
    /// Index of the chunk in each dimension.
    pub(super) at: Vec<u64>,
    /// Path below the array's folder.
    pub(super) key: String,
    /// Length of the file.
    pub(super) bytes: u64,
    path: PathBuf,
}

/// Lists the chunks that the store has. Files that are no chunk of the array's grid, such as those
/// that remain when an array shrinks, are left.
pub(super) fn of(dir: &Path, meta: &Meta) -> Result<Vec<Chunk>, Error> {
    let mut found = Vec::new();
    below(dir, "", meta, meta.shape.len() + 1, &mut found)?;
    Ok(found)
}

fn below(dir: &Path, prefix: &str, meta: &Meta, depth: usize, found: &mut Vec<Chunk>) -> Result<(), Error> {
    for (file, path) in list(dir)? {
        let key = format!("{prefix}{file}");
        let kind = fs::symlink_metadata(&path)?.file_type();
        if kind.is_dir() {
            if depth > 0 {
                below(&path, &format!("{key}/"), meta, depth - 1, found)?;
            }
            continue;
        }
        let Some(at) = meta.chunk_of(&key) else { continue };
        let about = fs::metadata(&path)?;
        if !about.is_file() {
            return Err(Error::NotRegular.at(key));
        }
        found.push(Chunk { at, key, bytes: about.len(), path });
    }
    Ok(())
}

impl Chunk {
    /// Returns the decoded bytes, as many as a chunk has.
    pub(super) fn read(&self, meta: &Meta) -> Result<Vec<u8>, Error> {
        let (size, most) = (meta.chunk_bytes(), meta.most_bytes());
        let mut bytes = Vec::new();
        File::open(&self.path)?.take(most as u64 + 1).read_to_end(&mut bytes)?;
        if bytes.len() > most {
            return Err(bad(format!("its file is longer than a chunk of {size} bytes can be")));
        }
        for codec in &meta.codecs {
            bytes = codec.decode(&bytes, most)?;
        }
        if bytes.len() != size {
            return Err(bad(format!("it has {} bytes instead of {size}", bytes.len())));
        }
        if meta.swapped {
            bytes.chunks_exact_mut(meta.dtype.scalar_bytes()).for_each(<[u8]>::reverse);
        }
        Ok(bytes)
    }
}

impl Meta {
    /// Returns the most bytes that a chunk may have before it is decoded to its end.
    fn most_bytes(&self) -> usize {
        self.chunk_bytes() + self.chunk_bytes() / 8 + (64 << 10)
    }

    /// Returns the index of the chunk with this key; `None` for another file.
    fn chunk_of(&self, key: &str) -> Option<Vec<u64>> {
        let key = match self.prefix {
            true if self.shape.is_empty() => return (key == "c").then(Vec::new),
            true => key.strip_prefix('c')?.strip_prefix(self.separator)?,
            false if self.shape.is_empty() => return (key == "0").then(Vec::new),
            false => key,
        };
        let number = |text: &str| text.parse().ok().filter(|number: &u64| number.to_string() == text);
        let at = key.split(self.separator).map(number).collect::<Option<Vec<u64>>>()?;
        let inside =
            at.len() == self.shape.len() && at.iter().zip(self.counts()).all(|(&at, count)| at < count);
        inside.then_some(at)
    }

    /// Fills memory with the fill value.
    pub(super) fn clear(&self, map: &mut [u8]) {
        let fill = self.fill.as_deref().unwrap_or_default();
        if fill.iter().any(|&byte| byte != 0) {
            map.chunks_exact_mut(fill.len()).for_each(|element| element.copy_from_slice(fill));
        }
    }

    /// Copies the part of a decoded chunk that lies in the array to its rows.
    pub(super) fn place(&self, chunk: &[u8], at: &[u64], map: &mut [u8]) {
        let (size, dimensions) = (self.dtype.bytes(), self.shape.len());
        let starts: Vec<usize> =
            at.iter().zip(&self.chunk).map(|(&at, &chunk)| (at * chunk) as usize).collect();
        let extents: Vec<usize> = (0..dimensions)
            .map(|d| (self.chunk[d] as usize).min(self.shape[d] as usize - starts[d]))
            .collect();
        let rows: Vec<usize> = (0..dimensions).collect();
        let from = strides(&self.chunk, &self.order);
        let to = strides(&self.shape, &rows);
        let (run, step) = match dimensions.checked_sub(1) {
            Some(last) => (extents[last], from[last]),
            None => (1, 1),
        };
        let outer = &extents[..dimensions.saturating_sub(1)];
        let mut index = vec![0; outer.len()];
        loop {
            let source: usize = index.iter().zip(&from).map(|(at, stride)| at * stride).sum();
            let offset: usize =
                index.iter().zip(&starts).zip(&to).map(|((at, start), to)| (at + start) * to).sum();
            let target = (offset + starts.last().copied().unwrap_or(0)) * size;
            let row = &mut map[target..target + run * size];
            if step == 1 {
                row.copy_from_slice(&chunk[source * size..][..run * size]);
            } else {
                for (at, element) in row.chunks_exact_mut(size).enumerate() {
                    element.copy_from_slice(&chunk[(source + at * step) * size..][..size]);
                }
            }
            // The next row: the last index runs fastest.
            let Some(next) = (0..outer.len()).rev().find(|&d| index[d] + 1 < outer[d]) else { return };
            index[next] += 1;
            index[next + 1..].fill(0);
        }
    }
}

/// Returns the elements from one index to the next in each dimension, if the dimensions are stored
/// in this order, slowest first.
fn strides(shape: &[u64], order: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    let mut stride = 1;
    for &dimension in order.iter().rev() {
        strides[dimension] = stride;
        stride *= shape[dimension] as usize;
    }
    strides
}
