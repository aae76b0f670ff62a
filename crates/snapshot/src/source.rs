//! The bytes of arrays, in a mapped file or in memory. The only unsafe code of this crate.
#![allow(unsafe_code)]

use std::{
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    ops::{Deref, DerefMut, Range},
    path::{Path, PathBuf},
};

use memmap2::{Mmap, MmapMut, MmapOptions, UncheckedAdvice};
use rustix::{
    fs::{FallocateFlags, fallocate},
    io::Errno,
};

use crate::Error;

/// Bytes that arrays are views of.
pub(crate) enum Source {
    /// A file, read page by page on access.
    Mapped(Mmap),
    /// Bytes that never were in a file.
    Memory(Vec<u8>),
}

impl Source {
    /// Maps a whole file.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let meta = std::fs::metadata(path)?;
        if meta.is_dir() {
            return Err(Error::Directory);
        }
        if !meta.is_file() {
            return Err(Error::NotRegular);
        }
        Self::map(&File::open(path)?)
    }

    /// Maps an open file.
    pub(crate) fn map(file: &File) -> Result<Self, Error> {
        if file.metadata()?.len() == 0 {
            return Err(Error::Empty);
        }
        // SAFETY: the mapping is shared and read-only, and nothing here writes to the file. If
        // another program changes or truncates the file meanwhile, we read other bytes, or the
        // system ends the process with SIGBUS; the crate's documentation says so.
        let map = unsafe { Mmap::map(file)? };
        Ok(Self::Mapped(map))
    }

    /// Returns all bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Memory(bytes) => bytes,
        }
    }

    /// Lets the system reclaim the memory behind a range; the next access reads the file again.
    /// Otherwise a pass over a large file would fill the process's resident set.
    pub(crate) fn release(&self, range: Range<usize>) {
        debug_assert!(range.start <= range.end && range.end <= self.bytes().len());
        if let Self::Mapped(map) = self {
            // SAFETY: for a shared, read-only file mapping MADV_DONTNEED only drops page table
            // entries; the next access reads the same bytes from the file. The range is inside the
            // mapping. A failure costs memory, never correctness, so it is ignored.
            let _ = unsafe {
                map.unchecked_advise_range(UncheckedAdvice::DontNeed, range.start, range.end - range.start)
            };
        }
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if matches!(self, Self::Mapped(_)) { "mapped" } else { "in memory" };
        write!(f, "{} bytes {kind}", self.bytes().len())
    }
}

/// A range of a temporary file, mapped to be written: the system moves its pages to the disk where
/// memory is short.
pub(crate) struct ScratchMap(Option<MmapMut>);

impl ScratchMap {
    /// Extends a temporary file of this process to `start + size` bytes and maps the last `size` of
    /// them.
    pub(crate) fn new(file: &File, start: u64, size: usize) -> Result<Self, Error> {
        if size == 0 {
            return Ok(Self(None));
        }
        // A page without a block on a full disk would stop the process when it is written.
        match fallocate(file, FallocateFlags::empty(), start, size as u64) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                let mut file = file;
                file.seek(SeekFrom::Start(start))?;
                std::io::copy(&mut std::io::repeat(0).take(size as u64), &mut file)?;
            }
            allocated => allocated.map_err(std::io::Error::from)?,
        }
        // SAFETY: the file has no name and only this process has it open, so nobody shortens it;
        // its blocks are allocated.
        let map = unsafe { MmapOptions::new().offset(start).len(size).map_mut(file)? };
        Ok(Self(Some(map)))
    }
}

impl Deref for ScratchMap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl DerefMut for ScratchMap {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.as_deref_mut().unwrap_or_default()
    }
}

/// Returns the bytes free to this user in the file system that holds, or will hold, `path`.
pub(crate) fn free_bytes(path: &Path) -> Result<u64, Error> {
    let mut existing = PathBuf::from(path);
    while !existing.exists() && existing.pop() {}
    if existing.as_os_str().is_empty() {
        existing.push(".");
    }
    let stat = rustix::fs::statvfs(&existing).map_err(std::io::Error::from)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}
