//! Entries from a file or from stdin, one after the other in bounded memory.

use std::{
    fs::File,
    io::{self, BufReader, Read},
    path::Path,
};

use anyhow::{Context, Result};
use buddy_core::{ENTRY_BYTES, Entry, last_entry};

/// The entries of a file, or of stdin for `-`. The last one is zero-padded.
pub(crate) struct Input {
    name: String,
    reader: BufReader<Box<dyn Read>>,
    piece: Vec<u8>,
    padding: usize,
}

impl Input {
    /// Opens a file, or stdin for `-`; nothing is read yet.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let (name, reader): (_, Box<dyn Read>) = if path == Path::new("-") {
            ("stdin".to_owned(), Box::new(io::stdin()))
        } else {
            let name = path.display().to_string();
            let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
            (name, Box::new(file))
        };
        let reader = BufReader::with_capacity(1 << 16, reader);
        Ok(Self { name, reader, piece: Vec::with_capacity(ENTRY_BYTES), padding: 0 })
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
