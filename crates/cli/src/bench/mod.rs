//! `buddy bench`: speed compared with named peers in the same run.

mod codec;
mod memory;
mod sim;
mod streaming;
mod timing;

use anyhow::Result;
use clap::{Args, Subcommand};

/// Measure speed on this machine, compared with named peers in the same run
///
/// Every timed round trip is verified. Other programs disturb wall-clock times, so compare within a
/// run, best with the copy.
#[derive(Args)]
#[command(after_help = "\
Examples:
  buddy bench codec
  buddy bench memory
  buddy bench sim")]
pub(crate) struct Bench {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Codec(codec::Codec),
    Memory(memory::Memory),
    Sim(sim::Sim),
}

impl Bench {
    pub(crate) fn run(self) -> Result<()> {
        match self.action {
            Action::Codec(bench) => bench.run(),
            Action::Memory(bench) => bench.run(),
            Action::Sim(bench) => bench.run(),
        }
    }
}
