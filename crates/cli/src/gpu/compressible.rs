//! `buddy gpu compressible`: what the GPU's own memory compression does to given data.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use anyhow::{Result, bail};
use buddy_cuda::{Error, Gpu};
use buddy_gpu_lab::{CompressibleCase, CompressibleRow, compressible, compressible_cases};
use buddy_snapshot::{Skipped, array_files_and_left, open_contents};
use clap::Args;

use crate::say;

/// Bytes of an array that are measured.
const SAMPLE: usize = 8 << 20;
/// Fewest bytes of an array that are worth a row.
const LEAST: usize = 4096;

/// Remark on the ratios of writes.
const CAUTION: &str = "Writes copy a tile from the L2 cache. The cost of other writes is unresolved: a pass over 4 GiB was slower \
    on compressible memory.";

/// Measure the GPU's own memory compression on data: speed of reads and writes, relative to plain
/// memory
///
/// NVIDIA GPUs for data centres can compress memory between the L2 cache and DRAM. That saves
/// bandwidth, never capacity. The first 8 MiB of each array fill plain and compressible memory.
/// Without files, synthetic kinds of data are measured, among them blocks of noise between zeros.
/// The ratio of writes holds for copies of a tile in the L2 cache; other writes may lose.
#[derive(Args)]
pub(super) struct Compressible {
    /// Files and folders, as `buddy analyze` reads them
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// GiB of memory of each kind
    #[arg(long, default_value = "1", value_name = "NUMBER", value_parser = super::between(1e-2..=1e3))]
    gib: f64,
    /// Write the results as a record
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

impl Compressible {
    pub(super) fn run(self, gpu: impl FnOnce() -> Result<Gpu, Error>) -> Result<()> {
        let (cases, skipped) =
            if self.paths.is_empty() { (compressible_cases(), Vec::new()) } else { self.read()? };
        for Skipped { file, name, why } in &skipped {
            let of = if file.is_empty() { String::new() } else { format!(" of {file}") };
            say(format_args!("skipped {name}{of}: {why}"));
        }
        let gpu = gpu()?;
        let mut out = io::stdout().lock();
        writeln!(
            out,
            "{:<40} {:>16} {:>16} {:>8} {:>8}",
            "GB/s", "plain write/read", "compressible", "write", "read"
        )?;
        let mut failed = None;
        let mut report = compressible(&gpu, (self.gib * super::GIB) as u64, &cases, |row| {
            failed = failed.take().or(print_row(&mut out, row).err());
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        writeln!(out, "{CAUTION}")?;
        report.skipped = skipped;
        super::record(self.json.as_deref(), report)
    }

    /// Reads the beginning of every array that is large enough, and lists what is skipped.
    fn read(&self) -> Result<(Vec<CompressibleCase>, Vec<Skipped>)> {
        let (mut cases, mut skipped) = (Vec::new(), Vec::new());
        for path in &self.paths {
            let (files, left) = array_files_and_left(path)?;
            for file in files {
                let contents = open_contents(&file, None)?;
                skipped.extend(contents.skipped);
                for array in contents.arrays {
                    let (name, bytes) = (array.name.clone(), array.bytes());
                    if bytes.len() >= LEAST {
                        cases.push(CompressibleCase::Bytes(name, bytes[..bytes.len().min(SAMPLE)].to_vec()));
                    } else {
                        let why = format!("it has {} bytes, fewer than {LEAST}", bytes.len());
                        skipped.push(Skipped::new(name, why).of(file.display().to_string()));
                    }
                }
            }
            skipped.extend(left);
        }
        if cases.is_empty() {
            bail!("no array of {LEAST} bytes or more in these files");
        }
        Ok((cases, skipped))
    }
}

fn print_row(out: &mut impl Write, row: &CompressibleRow) -> Result<()> {
    let CompressibleRow { data, plain_write, plain_read, write, read, .. } = row;
    Ok(writeln!(
        out,
        "{data:<40} {:>16} {:>16} {:>7.2}x {:>7.2}x",
        format!("{plain_write:.0}/{plain_read:.0}"),
        format!("{write:.0}/{read:.0}"),
        write / plain_write,
        read / plain_read,
    )?)
}
