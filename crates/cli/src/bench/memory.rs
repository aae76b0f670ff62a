//! `buddy bench memory`: cost of a Buddy memory over its codec.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use anyhow::Result;
use buddy_codec::CodecKind;
use buddy_core::Target;
use buddy_snapshot::write_atomic;
use clap::Args;

use super::streaming::{self, BenchSpec};

/// Time reads and writes of a Buddy memory, and compare with its codec and its storage alone
///
/// Writes and reads back samples of every size class. The table shows nanoseconds per 128-byte
/// entry, the cost relative to the codec and to the storage alone, and the gain from a second
/// thread.
#[derive(Args)]
#[command(after_help = "\
Examples:
  buddy bench memory
  buddy bench memory --codec bdi --target 4x")]
pub(crate) struct Memory {
    /// MiB of data
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=1024))]
    mib: u64,

    /// Passes per measurement; the fastest counts
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Codec to compress with
    #[arg(long, value_name = "NAME", default_value_t = CodecKind::Bpc)]
    codec: CodecKind,

    /// Target of the allocation: 1x, 4/3x, 2x, 4x or 16x
    #[arg(long, value_name = "RATIO", default_value_t = Target::X2)]
    target: Target,

    /// Write the record to PATH
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

impl Memory {
    pub(crate) fn run(&self) -> Result<()> {
        let spec =
            BenchSpec { bytes: self.mib << 20, rounds: self.rounds, codec: self.codec, target: self.target };
        let record = streaming::run(&spec)?;
        if let Some(path) = &self.json {
            write_atomic(path, |out| out.write_all(record.to_json().as_bytes()))?;
        }
        write!(io::stdout(), "{}", record.data)?;
        Ok(())
    }
}
