//! `buddy bench memory`: what a Buddy memory adds to its codec.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use anyhow::Result;
use buddy_codec::CodecKind;
use buddy_core::Target;
use buddy_memory::bench::{self, BenchSpec};
use buddy_snapshot::write_atomic;
use clap::Args;

/// Stream data through a Buddy memory, beside the codec alone and beside its storage alone
///
/// Writes and reads back a sample of every size class. The table has nanoseconds per 128-byte entry, and how
/// much more the memory costs than what stands beside it; then what a second thread gains.
#[derive(Args)]
#[command(after_help = "\
Examples:
  buddy bench memory
  buddy bench memory --codec bdi --target 4x")]
pub(crate) struct Memory {
    /// MiB of data
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=1024))]
    mib: u64,

    /// Passes of each kind; the fastest counts
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Codec to compress with
    #[arg(long, value_name = "NAME", default_value_t = CodecKind::Bpc)]
    codec: CodecKind,

    /// Target of the allocation: 1x, 4/3x, 2x, 4x or 16x
    #[arg(long, value_name = "RATIO", default_value_t = Target::X2)]
    target: Target,

    /// Write the record to this file
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

impl Memory {
    pub(crate) fn run(&self) -> Result<()> {
        let spec =
            BenchSpec { bytes: self.mib << 20, rounds: self.rounds, codec: self.codec, target: self.target };
        let record = bench::run(&spec)?;
        if let Some(path) = &self.json {
            write_atomic(path, |out| out.write_all(record.to_json().as_bytes()))?;
        }
        write!(io::stdout(), "{}", record.data)?;
        Ok(())
    }
}
