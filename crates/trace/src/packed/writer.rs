//! Encodes any kernel as a packed trace.

use std::{
    fs::File,
    io::{BufWriter, Write},
    path::Path,
};

use super::{
    MAX_BLOCK,
    columns::{ListCoder, ResidualWriter},
    frame,
    path::PathEncoder,
    predictor::AddressPredictor,
    table::{Index, NewDefinitions},
    varint::{damaged, put},
};
use crate::{Addresses, At, Code, Error, Kernel, Problem};

/// A frame ends with the block that reaches either limit: instructions, or bytes of columns.
const FRAME_INSTRUCTIONS: u64 = 1 << 20;
const FRAME_BYTES: usize = 1 << 22;

/// Size of a written trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    /// File size in bytes.
    pub bytes: u64,
    /// Warp instructions.
    pub instructions: u64,
}

/// Writes a kernel to a file.
///
/// # Errors
/// [`Error`] if the file cannot be written or the kernel cannot be read.
pub fn write_file(path: &Path, kernel: &mut dyn Kernel) -> Result<Written, Error> {
    let failed = |error| Error { file: path.display().to_string(), line: 0, problem: Problem::Io(error) };
    let mut file = BufWriter::new(File::create(path).map_err(failed)?);
    let written = write(&mut file, kernel)?;
    file.flush().map_err(failed)?;
    Ok(written)
}

/// Writes a kernel.
///
/// # Errors
/// [`Error`] if `out` fails, the kernel cannot be read, or one of its blocks has more than 16
/// million instructions.
pub fn write(out: &mut impl Write, kernel: &mut dyn Kernel) -> Result<Written, Error> {
    let failed = |problem| Error { file: "the packed trace".to_owned(), line: 0, problem };
    let launch = kernel.launch().clone();
    let mut written = Written { bytes: frame::write_start(out).map_err(failed)?, instructions: 0 };
    written.bytes += frame::write(out, &frame::header(&launch)).map_err(failed)?;
    let (mut packer, mut code) = (Packer::default(), Code::default());
    let blocks = launch.blocks();
    for block in 0..blocks {
        let mut budget = MAX_BLOCK;
        for warp in 0..launch.warps() {
            packer.predictor.begin(warp as usize, packer.instructions);
            let mut at = At { block, warp, step: 0 };
            loop {
                code.clear();
                kernel.fill(at, &mut code)?;
                if code.insts().is_empty() {
                    break;
                }
                packer.pack(&code, kernel.opcodes(), &mut budget).map_err(failed)?;
                at.step += 1;
            }
            written.instructions += packer.end_warp();
        }
        packer.blocks += 1;
        if packer.is_full() || block + 1 == blocks {
            written.bytes += frame::write(out, &packer.frame()).map_err(failed)?;
        }
    }
    let mut end = vec![frame::END];
    put(&mut end, written.instructions);
    written.bytes += frame::write(out, &end).map_err(failed)?;
    Ok(written)
}

/// The frame being encoded, and state kept across frames.
#[derive(Default)]
struct Packer {
    index: Index,
    paths: PathEncoder,
    predictor: AddressPredictor,
    lists: ListCoder,
    instructions: usize,
    resets: bool,
    blocks: u64,
    frame_instructions: u64,
    added: NewDefinitions,
    /// Steps of the current warp.
    path: Vec<u32>,
    warps: Vec<u8>,
    /// Run of warps with the same path, written when it ends: path number, its encoding if new, and
    /// number of warps.
    run: (usize, Vec<u8>, u64),
    residuals: ResidualWriter,
    listed: Vec<u8>,
}

impl Packer {
    /// Encodes a chunk of a warp within the block's instruction `budget`.
    fn pack(&mut self, code: &Code, names: &[String], budget: &mut u64) -> Result<(), Problem> {
        for (at, inst) in code.insts().iter().enumerate() {
            let addresses = if inst.width > 0 { Some(code.addresses(inst)) } else { None };
            let list = if let Some(Addresses::List(list)) = addresses { list } else { &[] };
            *budget = budget
                .checked_sub(1 + list.len() as u64 / 4)
                .ok_or(damaged("a block of more than 16 million instructions"))?;
            let (step, instruction) = self.index.step(code, at, names, &mut self.added)?;
            self.path.push(step);
            if self.index.instructions() > self.instructions {
                self.instructions = self.index.instructions();
                self.predictor.reserve(self.instructions);
                self.lists.reserve(self.instructions);
            }
            let base = match addresses {
                None => continue,
                Some(Addresses::List([])) => continue,
                Some(Addresses::List(list)) => {
                    self.lists.write(instruction, inst.width, list, &mut self.listed);
                    list[0]
                }
                Some(Addresses::Strided { base, .. }) => base,
            };
            let prediction = self.predictor.predict(instruction);
            let residual = base.wrapping_sub(prediction.base);
            self.residuals.push(residual);
            self.predictor.update(instruction, prediction, residual);
        }
        Ok(())
    }

    /// Ends a warp; returns its number of instructions.
    fn end_warp(&mut self) -> u64 {
        self.predictor.end();
        let mut bytes = Vec::new();
        let (path, is_new) = self.paths.find(&self.path, &mut bytes);
        if is_new || path != self.run.0 || self.run.2 == 0 {
            self.end_run();
            self.run = (path, bytes, 1);
        } else {
            self.run.2 += 1;
        }
        let count = self.path.len() as u64;
        self.path.clear();
        self.frame_instructions += count;
        count
    }

    fn end_run(&mut self) {
        let (path, bytes, warps) = std::mem::take(&mut self.run);
        if warps == 0 {
            return;
        }
        if bytes.is_empty() {
            put(&mut self.warps, path as u64 + 1);
        } else {
            self.warps.push(0);
            self.warps.extend(bytes);
        }
        put(&mut self.warps, warps - 1);
    }

    fn is_full(&self) -> bool {
        let bytes = self.warps.len() + self.residuals.bytes() + self.listed.len();
        self.frame_instructions >= FRAME_INSTRUCTIONS || bytes >= FRAME_BYTES || self.paths.is_full()
    }

    /// Ends and returns the frame.
    fn frame(&mut self) -> Vec<u8> {
        self.end_run();
        let mut out = vec![frame::BLOCKS, u8::from(self.resets)];
        put(&mut out, std::mem::take(&mut self.blocks));
        self.added.write(&mut out);
        put(&mut out, self.warps.len() as u64);
        out.append(&mut self.warps);
        self.residuals.write(&mut out);
        put(&mut out, self.listed.len() as u64);
        out.append(&mut self.listed);
        self.frame_instructions = 0;
        self.resets = self.paths.is_full();
        if self.resets {
            self.paths.reset();
        }
        out
    }
}
