//! `buddy gpu soak`: long-running integrity test of compressed memory.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use anyhow::Result;
use buddy_cuda::Gpu;
use buddy_gpu_lab::{SoakAsk, soak};
use clap::Args;

use crate::progress::Bar;

/// Write, overwrite, retarget and read back data for a long time, compared bit for bit on the GPU
///
/// Structured, random and adversarial data goes through every codec and target, with overflow to
/// device memory and over the link. The test ends when the volume has been written and read back,
/// or after --seconds. It fails at the first bit that differs.
#[derive(Args)]
pub(super) struct Soak {
    /// GB (10^9 bytes) to write and read back
    #[arg(long, default_value_t = 100.0, value_name = "NUMBER", value_parser = super::between(1e-3..=1e9))]
    gb: f64,
    /// Stop after this many seconds
    #[arg(long, default_value_t = 3600.0, value_name = "NUMBER", value_parser = super::between(0.0..=1e9))]
    seconds: f64,
    /// Concurrent streams, each with its own memory
    #[arg(long, default_value_t = 1, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=64))]
    streams: u16,
    /// Seed of the data and of the order of operations
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
    /// Write the result as a record
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

impl Soak {
    pub(super) fn run(self, gpu: &Gpu) -> Result<()> {
        let bytes = (self.gb * 1e9) as u64;
        let ask =
            SoakAsk { bytes, seconds: self.seconds, streams: usize::from(self.streams), seed: self.seed };
        let bar = Bar::new(bytes);
        let report = soak(gpu, ask, |written| bar.add(written));
        bar.finish();
        let report = report?;
        let gb = |bytes: u64| bytes as f64 / 1e9;
        writeln!(
            io::stdout(),
            "{:.1} GB written, {:.1} GB read back and bit-identical, in {:.1} s on {}: {} rounds on {} streams, {} retargets, \
             {} frees, {:.1} GB of overflowing entries",
            gb(report.written_bytes),
            gb(report.read_bytes),
            report.seconds,
            report.gpu,
            report.rounds,
            report.streams,
            report.retargets,
            report.frees,
            gb(report.overflowing_entries * 128),
        )?;
        super::record(self.json.as_deref(), report)
    }
}
