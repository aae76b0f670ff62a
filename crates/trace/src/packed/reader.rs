//! A kernel that decodes its blocks as they are launched.

use std::{
    collections::BTreeMap,
    io::{BufReader, Read},
    path::Path,
};

use super::{
    MAX_BLOCK,
    columns::{ListCoder, ResidualReader},
    frame,
    path::Paths,
    predictor::AddressPredictor,
    table::{Shape, Table},
    varint::{Cursor, damaged},
};
use crate::{At, Code, Error, Kernel, Launch, Problem, block_queue::BlockQueue, files::open};

/// A packed kernel. It holds one frame and the decoded blocks not yet consumed by every warp.
pub struct Reader {
    file: String,
    input: Box<dyn Read + Send>,
    launch: Launch,
    bytes: Vec<u8>,
    frame: Frame,
    unpacker: Decoder,
    pending: BlockQueue,
    /// Warp instructions decoded so far.
    instructions: u64,
}

/// Read positions in a frame's columns.
#[derive(Default)]
struct Frame {
    blocks: u64,
    warps: Cursor,
    /// Path of the next warps, and their number.
    run: (usize, u64),
    residuals: ResidualReader,
    lists: Cursor,
}

/// Decoder state kept across frames.
#[derive(Default)]
struct Decoder {
    table: Table,
    paths: Paths,
    predictor: AddressPredictor,
    lists: ListCoder,
    instructions: usize,
}

impl Reader {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// [`Error`] if the file cannot be read or is not a packed trace.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::new(&path.display().to_string(), BufReader::new(open(path)?))
    }

    /// Reads a packed trace from any input; `name` stands for the file in messages.
    ///
    /// # Errors
    /// [`Error`] if the input is not a packed trace.
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
            unpacker: Decoder::default(),
            pending: BlockQueue::default(),
            instructions: 0,
        })
    }

    /// Decodes the next block; after the last, only the end frame may follow.
    fn unpack_block(&mut self) -> Result<(), Problem> {
        let blocks = self.launch.blocks();
        if self.frame.blocks == 0 {
            self.next_frame(blocks - self.pending.blocks_read())?;
        }
        let mut budget = MAX_BLOCK;
        let mut warps = Vec::with_capacity(self.launch.warps() as usize);
        for warp in 0..self.launch.warps() {
            let mut code = self.pending.buffer();
            self.unpacker.unpack(&self.bytes, &mut self.frame, warp as usize, &mut budget, &mut code)?;
            self.instructions += code.insts().len() as u64;
            warps.push(Some(code));
        }
        self.pending.push(warps);
        self.frame.blocks -= 1;
        if self.frame.blocks == 0 && !self.frame.is_done() {
            return Err(damaged("a frame holds more than its blocks"));
        }
        if self.pending.blocks_read() == blocks { self.read_end() } else { Ok(()) }
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

    /// Checks the instruction count of the end frame, and that nothing follows it.
    fn read_end(&mut self) -> Result<(), Problem> {
        if frame::read(&mut self.input, &mut self.bytes)? != frame::END {
            return Err(damaged("a frame beyond the last block"));
        }
        let mut cursor = Cursor::all(&self.bytes);
        cursor.byte(&self.bytes)?;
        let expected = cursor.number(&self.bytes)?;
        if expected != self.instructions {
            let (what, found) = ("instructions", self.instructions);
            return Err(Problem::Count { what, found, expected });
        }
        // Unlike a bare read, this retries on interruption.
        match self.input.by_ref().take(1).read_to_end(&mut Vec::new())? {
            0 if cursor.is_done() => Ok(()),
            _ => Err(damaged("bytes behind the end")),
        }
    }
}

impl Frame {
    fn is_done(&self) -> bool {
        self.warps.is_done() && self.run.1 == 0 && self.residuals.is_done() && self.lists.is_done()
    }
}

impl Decoder {
    /// Decodes a frame's definitions, not its columns.
    fn begin(&mut self, bytes: &[u8]) -> Result<Frame, Problem> {
        let mut cursor = Cursor::all(bytes);
        cursor.byte(bytes)?;
        if cursor.below(bytes, 2, "a frame has flags that do not exist")? == 1 {
            self.paths.reset();
        }
        let blocks = cursor.number(bytes)?;
        self.table.read(bytes, &mut cursor)?;
        self.instructions = self.table.instructions();
        self.lists.reserve(self.instructions);
        let warps = cursor.section(bytes)?;
        let residuals = cursor.section(bytes)?;
        let residuals = ResidualReader::new(bytes, residuals)?;
        let lists = cursor.section(bytes)?;
        if !cursor.is_done() {
            return Err(damaged("a frame goes on behind its columns"));
        }
        Ok(Frame { blocks, warps, run: (0, 0), residuals, lists })
    }

    /// Decodes the next warp within the block's instruction `budget`.
    fn unpack(
        &mut self,
        bytes: &[u8],
        frame: &mut Frame,
        warp: usize,
        budget: &mut u64,
        code: &mut Code,
    ) -> Result<(), Problem> {
        let Self { table, paths, predictor, lists, instructions } = self;
        if frame.run.1 == 0 {
            frame.run = next_run(paths, bytes, &mut frame.warps, table.steps.len())?;
        }
        frame.run.1 -= 1;
        let path = paths.get(frame.run.0).ok_or(damaged("a path that is not defined"))?;
        deduct(budget, path.len() as u64)?;
        predictor.begin(warp, *instructions);
        for &number in path {
            let step = &table.steps[number as usize];
            table.opcodes.count(step.opcode, step.inst.mask);
            match step.shape {
                Shape::None => code.push(step.inst),
                Shape::Strided(_) => {
                    let prediction = predictor.predict(step.instruction);
                    let base = predictor.update(step.instruction, prediction, frame.residuals.next(bytes)?);
                    code.push(step.inst.from(base));
                }
                Shape::List if step.inst.mask == 0 => code.push_list(step.inst, step.inst.width, &[]),
                Shape::List => {
                    let lanes = step.inst.lanes() as usize;
                    deduct(budget, lanes as u64 / 4)?;
                    let prediction = predictor.predict(step.instruction);
                    let base = predictor.update(step.instruction, prediction, frame.residuals.next(bytes)?);
                    let list = &mut [0; 32][..lanes];
                    let from = (bytes, &mut frame.lists);
                    lists.read(step.instruction, (step.inst.width, base), from, list)?;
                    code.push_list(step.inst, step.inst.width, list);
                }
            }
            code.name_last(step.opcode);
        }
        predictor.end();
        Ok(())
    }
}

/// Path of the next warps, and their number.
fn next_run(
    paths: &mut Paths,
    bytes: &[u8],
    cursor: &mut Cursor,
    steps: usize,
) -> Result<(usize, u64), Problem> {
    let path = match cursor.number(bytes)? {
        0 => {
            paths.read(bytes, cursor, steps)?;
            paths.count() - 1
        }
        number => place_of(number - 1, paths.count())?,
    };
    let more = cursor.below(bytes, u64::MAX, "a path is repeated without end")?;
    Ok((path, more + 1))
}

fn place_of(number: u64, count: usize) -> Result<usize, Problem> {
    if number < count as u64 { Ok(number as usize) } else { Err(damaged("a path that is not defined")) }
}

/// Deducts from a block's instruction budget.
fn deduct(budget: &mut u64, amount: u64) -> Result<(), Problem> {
    *budget = budget.checked_sub(amount).ok_or(damaged("a block of more than 16 million instructions"))?;
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
        while at.block >= self.pending.blocks_read() && self.pending.blocks_read() < self.launch.blocks() {
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
