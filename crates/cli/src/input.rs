//! Entries of a file or of stdin, read one at a time in bounded memory.

use std::{
    fs::{self, File},
    io::{self, BufReader, Read, Seek},
    os::unix::fs::FileTypeExt,
    path::Path,
};

use anyhow::{Context, Result};
use buddy_core::{ENTRY_BYTES, Entry, last_entry};

use crate::say;

/// Iterator over the entries of a file, or of stdin for `-`. The last entry is zero-padded.
pub(crate) struct Input {
    name: String,
    reader: BufReader<Box<dyn Read>>,
    /// The same file, if it can be read twice.
    regular: Option<File>,
    piece: Vec<u8>,
    padding: usize,
}

impl Input {
    /// Opens a file, or stdin for `-`; reads nothing yet.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::new("stdin".to_owned(), Box::new(io::stdin())));
        }
        let name = path.display().to_string();
        if fs::metadata(path).is_ok_and(|about| about.file_type().is_fifo()) {
            say(format_args!("note: {name} is a pipe; waiting for its writer"));
        }
        let open = || -> io::Result<Self> {
            let file = File::open(path)?;
            let regular = if file.metadata()?.is_file() { Some(file.try_clone()?) } else { None };
            Ok(Self { regular, ..Self::new(name.clone(), Box::new(file)) })
        };
        open().with_context(|| format!("cannot open {name}"))
    }

    fn new(name: String, reader: Box<dyn Read>) -> Self {
        let reader = BufReader::with_capacity(1 << 16, reader);
        Self { name, reader, regular: None, piece: Vec::with_capacity(ENTRY_BYTES), padding: 0 }
    }

    /// Returns at most `most` evenly spaced entries, and the input rewound. Input that cannot be
    /// read twice goes through an unnamed temporary file, so it may be larger than memory.
    pub(crate) fn sample(mut self, most: usize) -> Result<(Vec<Entry>, Self)> {
        let mut file =
            self.rewindable().with_context(|| format!("cannot buffer {} for a second pass", self.name))?;
        let entries = file.metadata()?.len().div_ceil(ENTRY_BYTES as u64);
        let step = (entries as usize).div_ceil(most).max(1);
        let first = Self::new(self.name.clone(), Box::new(file.try_clone()?));
        let sample = first.step_by(step).collect::<Result<_>>()?;
        file.rewind()?;
        Ok((sample, Self::new(self.name, Box::new(file))))
    }

    /// Returns a file with the whole input, at its beginning.
    fn rewindable(&mut self) -> io::Result<File> {
        if let Some(file) = self.regular.take() {
            return Ok(file);
        }
        let mut file = tempfile::tempfile()?;
        io::copy(&mut self.reader, &mut file)?;
        file.rewind()?;
        Ok(file)
    }

    /// Returns the name for messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the zero bytes appended to the last entry, once it has been read.
    pub(crate) fn padding(&self) -> usize {
        self.padding
    }
}

impl Iterator for Input {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.piece.clear();
        match self.reader.by_ref().take(ENTRY_BYTES as u64).read_to_end(&mut self.piece) {
            Err(error) => Some(Err(error).with_context(|| format!("cannot read {}", self.name))),
            Ok(0) => None,
            Ok(bytes) => {
                self.padding = ENTRY_BYTES - bytes;
                last_entry(&self.piece).map(Ok)
            }
        }
    }
}
