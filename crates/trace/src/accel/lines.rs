//! The lines of a trace file, one at a time and of bounded length.

use std::{
    io::{self, BufReader, Read},
    path::Path,
};

use lzma_rust2::XzReader;

use crate::{Error, Problem, files::open};

/// The longest line that is read: 32 addresses take fewer than 800 bytes.
const MAX_LINE_BYTES: usize = 4096;
/// Bytes that are asked for at a time.
const PIECE_BYTES: usize = 1 << 18;
/// The most memory that decompression may take; `xz -9` needs 65 MiB.
const MAX_XZ_KIB: u32 = 128 << 10;

/// A file's lines, without blank ones.
pub(super) struct Lines {
    file: String,
    number: u64,
    reader: Box<dyn Read + Send>,
    /// Read and not yet given out: `buffer[next..filled]`.
    buffer: Vec<u8>,
    next: usize,
    filled: usize,
    /// The present line within the buffer, trimmed.
    line: std::ops::Range<usize>,
    /// Give the present line once more.
    again: bool,
}

impl Lines {
    /// Opens a file; one whose name ends in `.xz` is decompressed.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let (file, name) = (open(path)?, path.display().to_string());
        Ok(match path.extension().is_some_and(|end| end == "xz") {
            true => Self::compressed(&name, Box::new(file)),
            false => Self::new(&name, Box::new(file)),
        })
    }

    /// Lines of a reader of an `.xz` file.
    pub(super) fn compressed(file: &str, reader: Box<dyn Read + Send>) -> Self {
        let xz = XzReader::new_mem_limit(BufReader::new(reader), true, MAX_XZ_KIB);
        Self::new(file, Box::new(xz))
    }

    /// Lines of any reader; `file` is its name in messages.
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
            again: false,
        }
    }

    /// Goes on to the next line that is not blank; `false` at the end of the file.
    #[inline]
    pub(super) fn advance(&mut self) -> Result<bool, Error> {
        while !std::mem::take(&mut self.again) {
            let Some(bytes) = self.find_line()? else { return Ok(false) };
            self.number += 1;
            let whole = &self.buffer[self.next..self.next + bytes];
            let before = bytes - whole.trim_ascii_start().len();
            self.line = self.next + before..self.next + before + whole.trim_ascii().len();
            self.next += bytes;
            if bytes >= MAX_LINE_BYTES {
                let (what, range) = ("the length of this line", "under 4096 bytes");
                return Err(self.error(Problem::Range { what, found: bytes as u64, range }));
            }
            if !self.line.is_empty() {
                break;
            }
        }
        Ok(true)
    }

    /// Goes on to the next line; its absence is an error that names what the file ends in.
    #[inline]
    pub(super) fn expect(&mut self, inside: &'static str) -> Result<&[u8], Error> {
        if self.advance()? { Ok(self.line()) } else { Err(self.error(Problem::Truncated(inside))) }
    }

    /// The present line, trimmed.
    #[inline]
    pub(super) fn line(&self) -> &[u8] {
        &self.buffer[self.line.clone()]
    }

    /// How many bytes the next line has, with its end; none at the end of the file.
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

    /// Moves what is left to the front and reads behind it; `false` at the end of the file.
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

    /// Makes the next call give the present line again.
    pub(super) fn unread(&mut self) {
        self.again = true;
    }

    /// An error at the present line.
    pub(super) fn error(&self, problem: Problem) -> Error {
        Error { file: self.file.clone(), line: self.number, problem }
    }
}
