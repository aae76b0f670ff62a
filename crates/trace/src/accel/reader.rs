//! A kernel that reads its blocks from a trace file as they are launched.

use std::{
    collections::{BTreeMap, HashSet},
    io::{Read, Seek},
    path::Path,
};

use super::{
    header::{self, Header},
    line::Parser,
    lines::Lines,
    words::{digits, unexpected},
};
use crate::{At, Code, Error, Kernel, Launch, Problem, block_queue::BlockQueue};

/// A traced kernel. It buffers the blocks that were read but not yet consumed by every warp.
pub struct Reader {
    lines: Lines,
    header: Header,
    parser: Parser,
    pending: BlockQueue,
    /// Blocks already read.
    blocks_read: HashSet<u64>,
}

impl Reader {
    /// Opens a kernel file and reads its header. A name ending in `.xz` or `.tracez` is decompressed.
    ///
    /// # Errors
    /// [`Error`] if the file cannot be read or its header is malformed.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::start(Lines::open(path)?)
    }

    /// Reads a kernel from text; `name` stands for the file in messages.
    ///
    /// # Errors
    /// [`Error`] if the header is malformed.
    pub fn new(name: &str, text: impl Read + Send + 'static) -> Result<Self, Error> {
        Self::start(Lines::new(name, Box::new(text)))
    }

    /// Reads a kernel from xz-compressed text.
    ///
    /// # Errors
    /// [`Error`] if the bytes cannot be decompressed or the header is malformed.
    pub fn new_xz(name: &str, bytes: impl Read + Send + 'static) -> Result<Self, Error> {
        Self::start(Lines::compressed(name, Box::new(bytes)))
    }

    /// Reads a kernel from a `.tracez` file.
    ///
    /// # Errors
    /// [`Error`] if the file's parts are missing or the header is malformed.
    pub fn new_tracez(name: &str, bytes: impl Read + Seek + Send + 'static) -> Result<Self, Error> {
        Self::start(Lines::tracez(name, bytes)?)
    }

    fn start(mut lines: Lines) -> Result<Self, Error> {
        let header = header::read(&mut lines)?;
        let parser = Parser::new();
        Ok(Self { lines, header, parser, pending: BlockQueue::default(), blocks_read: HashSet::new() })
    }

    /// Returns the bytes of buffered instructions.
    pub fn heap_bytes(&self) -> usize {
        self.pending.heap_bytes()
    }

    /// Reads the next block; after the last, checks that the file ends.
    fn read_block(&mut self) -> Result<(), Error> {
        let (found, expected) = (self.pending.blocks_read(), self.header.launch.blocks());
        if !self.find_block()? {
            return Err(self.lines.error(Problem::Count { what: "thread blocks", found, expected }));
        }
        self.read_position()?;
        let warps = self.read_warps()?;
        self.pending.push(warps);
        if found + 1 == expected && self.find_block()? {
            return Err(self.lines.error(Problem::Beyond { what: "a thread block", expected }));
        }
        Ok(())
    }

    /// Advances to the next `#BEGIN_TB`; returns `false` at end of file.
    fn find_block(&mut self) -> Result<bool, Error> {
        while self.lines.advance()? {
            match self.lines.line() {
                b"#BEGIN_TB" => return Ok(true),
                line if line.starts_with(b"#") => {}
                line => return Err(self.lines.error(unexpected("#BEGIN_TB", line))),
            }
        }
        Ok(false)
    }

    /// Reads `thread block = x,y,z` and records the block.
    fn read_position(&mut self) -> Result<(), Error> {
        let grid = self.header.launch.grid;
        let line = self.lines.expect("a thread block")?;
        let position =
            value(line, "thread block").and_then(|text| header::numbers(str::from_utf8(text).ok()?));
        let index = match position {
            Some([x, y, z]) if x < grid[0] && y < grid[1] && z < grid[2] => {
                let [x, y, z, nx, ny] = [x, y, z, grid[0], grid[1]].map(u64::from);
                Ok(x + nx * (y + ny * z))
            }
            _ => Err(unexpected("'thread block = x,y,z' inside the grid", line)),
        };
        let index = index.map_err(|problem| self.lines.error(problem))?;
        if !self.blocks_read.insert(index) {
            return Err(self.lines.error(Problem::Twice { what: "thread block", index }));
        }
        Ok(())
    }

    /// Reads the warps up to `#END_TB`.
    fn read_warps(&mut self) -> Result<Vec<Option<Code>>, Error> {
        let expected = self.header.launch.warps() as usize;
        let mut warps: Vec<Option<Code>> = Vec::new();
        warps.resize_with(expected, || None);
        loop {
            let line = self.lines.expect("a thread block")?;
            if line == b"#END_TB" {
                break;
            }
            // Version 6: the block's cluster, which is not modelled.
            if line.starts_with(b"cluster ") && warps.iter().all(Option::is_none) {
                continue;
            }
            let warp = value(line, "warp").and_then(digits).and_then(|warp| usize::try_from(warp).ok());
            let warp = match warp {
                Some(warp) if warp >= expected => Err(Problem::Range {
                    what: "the warp",
                    found: warp as u64,
                    range: "under the number of warps in a block",
                }),
                Some(warp) if warps[warp].is_some() => {
                    Err(Problem::Twice { what: "warp", index: warp as u64 })
                }
                Some(warp) => Ok(warp),
                None => Err(unexpected("'warp = n' or #END_TB", line)),
            };
            let warp = warp.map_err(|problem| self.lines.error(problem))?;
            warps[warp] = Some(self.read_code()?);
        }
        let found = warps.iter().flatten().count();
        if found < expected {
            let (found, expected) = (found as u64, expected as u64);
            return Err(self.lines.error(Problem::Count { what: "warps", found, expected }));
        }
        Ok(warps)
    }

    /// Reads `insts = n` and `n` instructions.
    fn read_code(&mut self) -> Result<Code, Error> {
        let line = self.lines.expect("a warp")?;
        let count = value(line, "insts").and_then(digits);
        let count = count.ok_or_else(|| unexpected("'insts = n'", line));
        let count = count.map_err(|problem| self.lines.error(problem))?;
        let mut code = self.pending.buffer();
        for found in 0..count {
            let line = self.lines.expect("a warp")?;
            let done = if line.starts_with(b"#") || line.starts_with(b"warp") {
                Err(Problem::Count { what: "instructions", found, expected: count })
            } else {
                self.parser.parse(line, &self.header, &mut code)
            };
            done.map_err(|problem| self.lines.error(problem))?;
        }
        Ok(code)
    }
}

/// Returns the value of a line `name = value`.
fn value<'a>(line: &'a [u8], name: &str) -> Option<&'a [u8]> {
    Some(line.strip_prefix(name.as_bytes())?.trim_ascii_start().strip_prefix(b"=")?.trim_ascii())
}

impl Kernel for Reader {
    fn launch(&self) -> &Launch {
        &self.header.launch
    }

    fn opcodes(&self) -> &[String] {
        self.parser.opcodes.names()
    }

    fn unknown(&self) -> BTreeMap<String, u64> {
        self.parser.opcodes.unknown()
    }

    fn fill(&mut self, at: At, code: &mut Code) -> Result<(), Error> {
        if at.step > 0 {
            return Ok(());
        }
        while at.block >= self.pending.blocks_read()
            && self.pending.blocks_read() < self.header.launch.blocks()
        {
            self.read_block()?;
        }
        self.pending.take(at, code);
        Ok(())
    }
}
