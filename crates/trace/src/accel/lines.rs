//! Line reader of trace files, with bounded line length.

use std::{
    io::{self, BufReader, Read, Seek},
    path::Path,
};

use lzma_rust2::XzReader;

use super::tracez;
use crate::{Error, Problem, files::open};

/// Largest line length. 32 addresses take fewer than 800 bytes; version 6 has those of a whole box of a
/// bulk copy.
const MAX_LINE_BYTES: usize = 1 << 16;
/// Read size in bytes.
const PIECE_BYTES: usize = 1 << 18;
/// Memory limit of the xz decoder; `xz -9` needs 65 MiB.
const MAX_XZ_KIB: u32 = 128 << 10;

/// Non-blank lines of a file.
pub(super) struct Lines {
    file: String,
    number: u64,
    reader: Box<dyn Read + Send>,
    /// Read buffer; `buffer[next..filled]` is unconsumed.
    buffer: Vec<u8>,
    next: usize,
    filled: usize,
    /// Current line within the buffer, trimmed.
    line: std::ops::Range<usize>,
    /// If true, the next call returns the current line again.
    repeat_line: bool,
}

impl Lines {
    /// Opens a file; a name ending in `.xz` or `.tracez` is decompressed.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let (file, name) = (open(path)?, path.display().to_string());
        match path.extension().and_then(|end| end.to_str()) {
            Some("xz") => Ok(Self::compressed(&name, Box::new(file))),
            Some("tracez") => Self::tracez(&name, BufReader::new(file)),
            _ => Ok(Self::new(&name, Box::new(file))),
        }
    }

    /// Returns the lines of a `.tracez` file.
    pub(super) fn tracez(file: &str, reader: impl Read + Seek + Send + 'static) -> Result<Self, Error> {
        let failed = |error| Error { file: file.to_owned(), line: 0, problem: Problem::Io(error) };
        Ok(Self::new(file, Box::new(tracez::Text::new(reader).map_err(failed)?)))
    }

    /// Returns the lines of xz-compressed input.
    pub(super) fn compressed(file: &str, reader: Box<dyn Read + Send>) -> Self {
        let xz = XzReader::new_mem_limit(BufReader::new(reader), true, MAX_XZ_KIB);
        Self::new(file, Box::new(xz))
    }

    /// Returns the lines of any input; `file` is its name in messages.
    pub(super) fn new(file: &str, reader: Box<dyn Read + Send>) -> Self {
        let buffer = Vec::new();
        Self {
            file: file.to_owned(),
            number: 0,
            reader,
            buffer,
            next: 0,
            filled: 0,
            line: 0..0,
            repeat_line: false,
        }
    }

    /// Advances to the next non-blank line; returns `false` at end of file.
    #[inline]
    pub(super) fn advance(&mut self) -> Result<bool, Error> {
        while !std::mem::take(&mut self.repeat_line) {
            let Some(bytes) = self.find_line()? else { return Ok(false) };
            self.number += 1;
            let whole = &self.buffer[self.next..self.next + bytes];
            let before = bytes - whole.trim_ascii_start().len();
            self.line = self.next + before..self.next + before + whole.trim_ascii().len();
            self.next += bytes;
            if bytes >= MAX_LINE_BYTES {
                let (what, range) = ("the length of this line", "under 65536 bytes");
                return Err(self.error(Problem::Range { what, found: bytes as u64, range }));
            }
            if !self.line.is_empty() {
                break;
            }
        }
        Ok(true)
    }

    /// Returns the next line; at end of file, an error that names the enclosing element.
    #[inline]
    pub(super) fn expect(&mut self, inside: &'static str) -> Result<&[u8], Error> {
        if self.advance()? { Ok(self.line()) } else { Err(self.error(Problem::Truncated(inside))) }
    }

    /// Returns the current line, trimmed.
    #[inline]
    pub(super) fn line(&self) -> &[u8] {
        &self.buffer[self.line.clone()]
    }

    /// Returns the length of the next line with its terminator, or `None` at end of file.
    #[inline]
    fn find_line(&mut self) -> Result<Option<usize>, Error> {
        let mut seen = 0;
        loop {
            let window = &self.buffer[self.next + seen..self.filled];
            if let Some(end) = memchr::memchr(b'\n', window) {
                return Ok(Some(seen + end + 1));
            }
            seen += window.len();
            if seen >= MAX_LINE_BYTES || !self.read_more()? {
                return Ok((seen > 0).then_some(seen));
            }
        }
    }

    /// Moves the unconsumed bytes to the front and reads more; returns `false` at end of file.
    fn read_more(&mut self) -> Result<bool, Error> {
        self.buffer.copy_within(self.next..self.filled, 0);
        (self.filled, self.next) = (self.filled - self.next, 0);
        self.buffer.resize(PIECE_BYTES, 0);
        loop {
            match self.reader.read(&mut self.buffer[self.filled..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.error(Problem::Io(error))),
                Ok(bytes) => {
                    self.filled += bytes;
                    return Ok(bytes > 0);
                }
            }
        }
    }

    /// Makes the next call return the current line again.
    pub(super) fn unread(&mut self) {
        self.repeat_line = true;
    }

    /// Returns an error at the current line.
    pub(super) fn error(&self, problem: Problem) -> Error {
        Error { file: self.file.clone(), line: self.number, problem }
    }
}
