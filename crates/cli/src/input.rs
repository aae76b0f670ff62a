//! Entries from a file or from stdin, one after the other in bounded memory.

use std::{
    fs::{self, File},
    io::{self, BufReader, Read, Seek},
    os::unix::fs::FileTypeExt,
    path::Path,
};

use anyhow::{Context, Result};
use buddy_core::{ENTRY_BYTES, Entry, last_entry};

use crate::say;

/// The entries of a file, or of stdin for `-`. The last one is zero-padded.
pub(crate) struct Input {
    name: String,
    reader: BufReader<Box<dyn Read>>,
    /// The same file, where it can be read again.
    regular: Option<File>,
    piece: Vec<u8>,
    padding: usize,
}

impl Input {
    /// Opens a file, or stdin for `-`; nothing is read yet.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::new("stdin".to_owned(), Box::new(io::stdin())));
        }
        let name = path.display().to_string();
        if fs::metadata(path).is_ok_and(|about| about.file_type().is_fifo()) {
            say(format_args!("note: {name} is a pipe: this waits for whoever writes to it"));
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

    /// Takes at most `most` entries, evenly spaced, and gives the input from its beginning again. What cannot be read
    /// twice goes through a temporary file without a name, so that it may be larger than memory.
    pub(crate) fn sample(mut self, most: usize) -> Result<(Vec<Entry>, Self)> {
        let mut file = self.kept().with_context(|| format!("cannot keep {} for a second look", self.name))?;
        let entries = file.metadata()?.len().div_ceil(ENTRY_BYTES as u64);
        let step = (entries as usize).div_ceil(most).max(1);
        let first = Self::new(self.name.clone(), Box::new(file.try_clone()?));
        let sample = first.step_by(step).collect::<Result<_>>()?;
        file.rewind()?;
        Ok((sample, Self::new(self.name, Box::new(file))))
    }

    /// A file of the whole input, at its beginning.
    fn kept(&mut self) -> io::Result<File> {
        if let Some(file) = self.regular.take() {
            return Ok(file);
        }
        let mut file = tempfile::tempfile()?;
        io::copy(&mut self.reader, &mut file)?;
        file.rewind()?;
        Ok(file)
    }

    /// What to call it in messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// How many zeros fill up the last entry, once that has been read.
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
