//! Memory for arrays that must be converted: one unnamed temporary file, mapped once it is
//! complete. Memory stays bounded, and no file is left behind. [`inflate_limit`] bounds the output
//! of a small file.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    ops::Range,
    sync::Arc,
};

use crate::{
    Error,
    source::{ScratchMap, Source, free_bytes},
};

/// Returns the most bytes that all compressed arrays of a file may inflate to: 1 GiB, or 32 times
/// the file if that is more. Deflate reaches 1032 times; numeric data stays far below 32, except
/// arrays of zeros, for which 1 GiB leaves room.
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
    /// Creates scratch memory for a file of this length.
    pub(crate) fn new(file_bytes: u64) -> Self {
        Self { file: None, bytes: 0, limit: inflate_limit(file_bytes) }
    }

    /// Returns the limit for all arrays together.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Fails if this many bytes more exceed the limit.
    pub(crate) fn reserve(&self, size: u64) -> Result<(), Error> {
        let inflated = self.bytes.saturating_add(size);
        if inflated > self.limit {
            return Err(Error::Bomb { inflated, limit: self.limit });
        }
        let free = free_bytes(&std::env::temp_dir())?;
        if size > free { Err(Error::NoSpace { needed: size, free }) } else { Ok(()) }
    }

    /// Appends an array. Its header is not trusted: returns the bytes that came, up to one more
    /// than `size`.
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

    /// Appends an array of zeros that is to be filled through a mapping.
    pub(crate) fn map_zeros(&mut self, size: u64) -> Result<(Range<usize>, ScratchMap), Error> {
        self.reserve(size)?;
        let start = self.bytes;
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(tempfile::tempfile()?),
        };
        let map = ScratchMap::new(file, start, size as usize)?;
        self.bytes = start + size;
        file.seek(SeekFrom::Start(self.bytes))?;
        Ok((start as usize..self.bytes as usize, map))
    }

    /// Maps a temporary file of its own, which is freed with the mapping.
    pub(crate) fn apart(&self, size: u64) -> Result<ScratchMap, Error> {
        self.reserve(size)?;
        ScratchMap::new(&tempfile::tempfile()?, 0, size as usize)
    }

    /// Maps everything that was written.
    pub(crate) fn finish(self) -> Result<Arc<Source>, Error> {
        match self.file {
            Some(file) if self.bytes > 0 => Source::map(&file).map(Arc::new),
            _ => Ok(Arc::new(Source::Memory(Vec::new()))),
        }
    }
}
