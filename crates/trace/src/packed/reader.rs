//! A kernel that unpacks its blocks as they are launched.

use std::{
    collections::BTreeMap,
    io::{BufReader, Read},
    path::Path,
};

use super::{
    MAX_BLOCK,
    columns::{Lists, ReadWrongs},
    frame,
    path::Paths,
    table::{Shape, Table},
    varint::{Place, damaged},
    walk::Walk,
};
use crate::{At, Code, Error, Kernel, Launch, Problem, files::open, pending::Pending};

/// A packed kernel. It holds one frame, and the blocks that have been unpacked and not yet been taken by every warp.
pub struct Reader {
    file: String,
    input: Box<dyn Read + Send>,
    launch: Launch,
    bytes: Vec<u8>,
    frame: Frame,
    unpacker: Unpacker,
    pending: Pending,
    /// Warp instructions so far.
    instructions: u64,
}

/// Where a frame's columns are read.
#[derive(Default)]
struct Frame {
    blocks: u64,
    warps: Place,
    /// The path of the next warps, and how many they are.
    run: (usize, u64),
    wrongs: ReadWrongs,
    lists: Place,
}

/// What is kept from frame to frame.
#[derive(Default)]
struct Unpacker {
    table: Table,
    paths: Paths,
    walk: Walk,
    lists: Lists,
    instructions: usize,
}

impl Reader {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// [`Error`] if the file cannot be read or does not begin as a packed trace does.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::new(&path.display().to_string(), BufReader::new(open(path)?))
    }

    /// The same for any bytes; `name` stands for the file in messages.
    ///
    /// # Errors
    /// [`Error`] if they do not begin as a packed trace does.
    pub fn new(name: &str, mut input: impl Read + Send + 'static) -> Result<Self, Error> {
        let mut bytes = Vec::new();
        let mut start = || {
            frame::read_start(&mut input)?;
            frame::read(&mut input, &mut bytes)?;
            frame::read_header(&bytes)
        };
        let launch = start().map_err(|problem| Error { file: name.to_owned(), line: 0, problem })?;
        Ok(Self {
            file: name.to_owned(),
            input: Box::new(input),
            launch,
            bytes,
            frame: Frame::default(),
            unpacker: Unpacker::default(),
            pending: Pending::default(),
            instructions: 0,
        })
    }

    /// Unpacks the next block; after the last one only the end may follow.
    fn unpack_block(&mut self) -> Result<(), Problem> {
        let blocks = self.launch.blocks();
        if self.frame.blocks == 0 {
            self.next_frame(blocks - self.pending.read())?;
        }
        let mut room = MAX_BLOCK;
        let mut warps = Vec::with_capacity(self.launch.warps() as usize);
        for warp in 0..self.launch.warps() {
            let mut code = self.pending.room();
            self.unpacker.unpack(&self.bytes, &mut self.frame, warp as usize, &mut room, &mut code)?;
            self.instructions += code.insts().len() as u64;
            warps.push(Some(code));
        }
        self.pending.push(warps);
        self.frame.blocks -= 1;
        if self.frame.blocks == 0 && !self.frame.is_done() {
            return Err(damaged("a frame holds more than its blocks"));
        }
        if self.pending.read() == blocks { self.read_end() } else { Ok(()) }
    }

    fn next_frame(&mut self, most: u64) -> Result<(), Problem> {
        if frame::read(&mut self.input, &mut self.bytes)? != frame::BLOCKS {
            return Err(damaged("the trace ends before its last block"));
        }
        self.frame = self.unpacker.begin(&self.bytes)?;
        if self.frame.blocks == 0 || self.frame.blocks > most {
            return Err(damaged("a frame holds no block, or blocks beyond the grid"));
        }
        Ok(())
    }

    /// The last frame says how many instructions there are; nothing follows it.
    fn read_end(&mut self) -> Result<(), Problem> {
        if frame::read(&mut self.input, &mut self.bytes)? != frame::END {
            return Err(damaged("a frame beyond the last block"));
        }
        let mut place = Place::all(&self.bytes);
        place.byte(&self.bytes)?;
        let expected = place.number(&self.bytes)?;
        if expected != self.instructions {
            let (what, found) = ("instructions", self.instructions);
            return Err(Problem::Count { what, found, expected });
        }
        // Unlike a bare read, this goes on after an interruption.
        match self.input.by_ref().take(1).read_to_end(&mut Vec::new())? {
            0 if place.is_done() => Ok(()),
            _ => Err(damaged("bytes behind the end")),
        }
    }
}

impl Frame {
    fn is_done(&self) -> bool {
        self.warps.is_done() && self.run.1 == 0 && self.wrongs.is_done() && self.lists.is_done()
    }
}

impl Unpacker {
    /// Reads all of a frame but its columns.
    fn begin(&mut self, bytes: &[u8]) -> Result<Frame, Problem> {
        let mut place = Place::all(bytes);
        place.byte(bytes)?;
        if place.under(bytes, 2, "a frame has flags that do not exist")? == 1 {
            self.paths.forget();
        }
        let blocks = place.number(bytes)?;
        self.table.read(bytes, &mut place)?;
        self.instructions = self.table.instructions();
        self.lists.reserve(self.instructions);
        let warps = place.part(bytes)?;
        let wrongs = place.part(bytes)?;
        let wrongs = ReadWrongs::new(bytes, wrongs)?;
        let lists = place.part(bytes)?;
        if !place.is_done() {
            return Err(damaged("a frame goes on behind its columns"));
        }
        Ok(Frame { blocks, warps, run: (0, 0), wrongs, lists })
    }

    /// Unpacks the next warp, as long as its block has room.
    fn unpack(
        &mut self,
        bytes: &[u8],
        frame: &mut Frame,
        warp: usize,
        room: &mut u64,
        code: &mut Code,
    ) -> Result<(), Problem> {
        let Self { table, paths, walk, lists, instructions } = self;
        if frame.run.1 == 0 {
            frame.run = next_run(paths, bytes, &mut frame.warps, table.steps.len())?;
        }
        frame.run.1 -= 1;
        let path = paths.get(frame.run.0).ok_or(damaged("a path that is not defined"))?;
        take(room, path.len() as u64)?;
        walk.begin(warp, *instructions);
        for &number in path {
            let step = &table.steps[number as usize];
            table.opcodes.count(step.opcode, step.inst.mask);
            match step.shape {
                Shape::None => code.push(step.inst),
                Shape::Strided(_) => {
                    let foretold = walk.foretell(step.instruction);
                    let base = walk.learn(step.instruction, foretold, frame.wrongs.next(bytes)?);
                    code.push(step.inst.from(base));
                }
                Shape::List if step.inst.mask == 0 => code.push_list(step.inst, step.inst.width, &[]),
                Shape::List => {
                    let lanes = step.inst.lanes() as usize;
                    take(room, lanes as u64 / 4)?;
                    let foretold = walk.foretell(step.instruction);
                    let base = walk.learn(step.instruction, foretold, frame.wrongs.next(bytes)?);
                    let list = &mut [0; 32][..lanes];
                    let from = (bytes, &mut frame.lists);
                    lists.read(step.instruction, (step.inst.width, base), from, list)?;
                    code.push_list(step.inst, step.inst.width, list);
                }
            }
            code.name_last(step.opcode);
        }
        walk.end();
        Ok(())
    }
}

/// The path of the next warps, and how many they are.
fn next_run(
    paths: &mut Paths,
    bytes: &[u8],
    place: &mut Place,
    steps: usize,
) -> Result<(usize, u64), Problem> {
    let path = match place.number(bytes)? {
        0 => {
            paths.read(bytes, place, steps)?;
            paths.count() - 1
        }
        number => place_of(number - 1, paths.count())?,
    };
    let more = place.under(bytes, u64::MAX, "a path is repeated without end")?;
    Ok((path, more + 1))
}

fn place_of(number: u64, count: usize) -> Result<usize, Problem> {
    if number < count as u64 { Ok(number as usize) } else { Err(damaged("a path that is not defined")) }
}

/// Takes some of a block's room.
fn take(room: &mut u64, amount: u64) -> Result<(), Problem> {
    *room = room.checked_sub(amount).ok_or(damaged("a block of more than 16 million instructions"))?;
    Ok(())
}

impl Kernel for Reader {
    fn launch(&self) -> &Launch {
        &self.launch
    }

    fn fill(&mut self, at: At, code: &mut Code) -> Result<(), Error> {
        if at.step > 0 {
            return Ok(());
        }
        while at.block >= self.pending.read() && self.pending.read() < self.launch.blocks() {
            self.unpack_block().map_err(|problem| Error { file: self.file.clone(), line: 0, problem })?;
        }
        self.pending.take(at, code);
        Ok(())
    }

    fn opcodes(&self) -> &[String] {
        self.unpacker.table.opcodes.names()
    }

    fn unknown(&self) -> BTreeMap<String, u64> {
        self.unpacker.table.opcodes.unknown()
    }
}
