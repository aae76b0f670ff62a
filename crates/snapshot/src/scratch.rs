//! Room for arrays that do not lie in their file as they are: one temporary file without a name,
//! which is mapped once all is written. Memory stays bounded, and nothing is left behind.
//! [`inflate_limit`] bounds what a small file may become.

use std::{fs::File, io::Read, ops::Range, sync::Arc};

use crate::{
    Error,
    source::{Source, free_bytes},
};

/// The most bytes that the compressed arrays of a file of this length may inflate to, all together:
/// 1 GiB, or 32 times the file where that is more. Deflate itself reaches 1032 times; numbers worth
/// studying do not come near 32, but for arrays of zeros, which 1 GiB leaves room for.
pub fn inflate_limit(file_bytes: u64) -> u64 {
    file_bytes.saturating_mul(32).max(1 << 30)
}

/// Collects inflated arrays.
pub(crate) struct Scratch {
    file: Option<File>,
    bytes: u64,
    limit: u64,
}

impl Scratch {
    /// Room for what a file of this length may inflate to.
    pub(crate) fn new(file_bytes: u64) -> Self {
        Self { file: None, bytes: 0, limit: inflate_limit(file_bytes) }
    }

    /// The most bytes that all arrays may have together.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Whether there is room for this many bytes more.
    pub(crate) fn reserve(&self, size: u64) -> Result<(), Error> {
        let inflated = self.bytes.saturating_add(size);
        if inflated > self.limit {
            return Err(Error::Bomb { inflated, limit: self.limit });
        }
        let free = free_bytes(&std::env::temp_dir())?;
        if size > free { Err(Error::NoSpace { needed: size, free }) } else { Ok(()) }
    }

    /// Appends an array. Its header may lie, so what really comes out is counted too: the number of
    /// bytes that came, up to one more than `size`.
    pub(crate) fn add(&mut self, from: &mut dyn Read, size: u64) -> std::io::Result<(Range<usize>, u64)> {
        let start = self.bytes;
        self.bytes = start.saturating_add(size);
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(tempfile::tempfile()?),
        };
        let written = std::io::copy(&mut from.take(size.saturating_add(1)), file)?;
        Ok((start as usize..self.bytes as usize, written))
    }

    /// All that was written.
    pub(crate) fn finish(self) -> Result<Arc<Source>, Error> {
        match self.file {
            Some(file) if self.bytes > 0 => Source::map(&file).map(Arc::new),
            _ => Ok(Arc::new(Source::Memory(Vec::new()))),
        }
    }
}
