//! `buddy bench`: our speed beside named peers, in one run.

mod codec;
mod memory;
mod sim;
mod timing;

use anyhow::Result;
use clap::{Args, Subcommand};

/// Measure our speed beside named peers, in one run
///
/// Every round trip that is timed is verified. Other programs on the machine disturb wall-clock times: compare
/// within a run, above all with the copy.
#[derive(Args)]
#[command(after_help = "\
Examples:
  buddy bench codec
  buddy bench memory
  buddy bench sim")]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Codec(codec::Codec),
    Memory(memory::Memory),
    Sim(sim::Sim),
}

impl Bench {
    pub(crate) fn run(self) -> Result<()> {
        match self.what {
            What::Codec(bench) => bench.run(),
            What::Memory(bench) => bench.run(),
            What::Sim(bench) => bench.run(),
        }
    }
}
