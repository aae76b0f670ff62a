//! The lines of a trace file, one at a time and of bounded length.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    path::Path,
};

use lzma_rust2::XzReader;

use crate::{Error, Problem};

/// The longest line that is read: 32 addresses take fewer than 800 bytes.
const MAX_LINE_BYTES: u64 = 4096;
/// The most memory that decompression may take; `xz -9` needs 65 MiB.
const MAX_XZ_KIB: u32 = 128 << 10;

/// A file's lines, without blank ones.
pub(super) struct Lines {
    file: String,
    number: u64,
    reader: Box<dyn BufRead + Send>,
    line: Vec<u8>,
    /// Give the line that was last read once more.
    again: bool,
}

impl Lines {
    /// Opens a file; one whose name ends in `.xz` is decompressed.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| Error {
            file: name.clone(),
            line: 0,
            problem: Problem::Io(error),
        })?;
        Ok(if path.extension().is_some_and(|end| end == "xz") {
            let xz = XzReader::new_mem_limit(BufReader::new(file), true, MAX_XZ_KIB);
            Self::new(&name, Box::new(BufReader::with_capacity(1 << 16, xz)))
        } else {
            Self::new(&name, Box::new(BufReader::with_capacity(1 << 16, file)))
        })
    }

    /// Lines of any reader; `file` is its name in messages.
    pub(super) fn new(file: &str, reader: Box<dyn BufRead + Send>) -> Self {
        Self { file: file.to_owned(), number: 0, reader, line: Vec::new(), again: false }
    }

    /// The next line that is not blank, trimmed; `None` at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<&str>, Error> {
        while !std::mem::take(&mut self.again) {
            self.line.clear();
            let read = self.reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut self.line);
            match read {
                Err(error) => return Err(self.error(Problem::Io(error))),
                Ok(0) => return Ok(None),
                Ok(_) => self.number += 1,
            }
            if self.line.len() as u64 == MAX_LINE_BYTES {
                return Err(self.error(Problem::Range {
                    what: "the length of this line",
                    found: MAX_LINE_BYTES,
                    range: "under 4096 bytes",
                }));
            }
            if !self.line.trim_ascii().is_empty() {
                break;
            }
        }
        match std::str::from_utf8(self.line.trim_ascii()) {
            Ok(_) => Ok(std::str::from_utf8(self.line.trim_ascii()).ok()),
            Err(_) => Err(self.error(Problem::expected("text", &String::from_utf8_lossy(&self.line)))),
        }
    }

    /// The next line; its absence is an error that names what the file ends in.
    pub(super) fn expect(&mut self, inside: &'static str) -> Result<&str, Error> {
        // Looked at twice, because a line that is given out cannot be kept while the error is made.
        if self.next()?.is_none() {
            return Err(self.error(Problem::Truncated(inside)));
        }
        self.again = true;
        Ok(self.next()?.unwrap_or_default())
    }

    /// Makes the next call give the present line again.
    pub(super) fn unread(&mut self) {
        self.again = true;
    }

    /// An error at the present line.
    pub(super) fn error(&self, problem: Problem) -> Error {
        Error { file: self.file.clone(), line: self.number, problem }
    }
}
