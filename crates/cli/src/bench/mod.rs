//! `buddy bench`: our speed beside a peer's, in one run.

mod memory;

use anyhow::Result;
use clap::{Args, Subcommand};

/// Measure speed, always beside something else in the same run
#[derive(Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Memory(memory::Memory),
}

impl Bench {
    pub(crate) fn run(&self) -> Result<()> {
        match &self.what {
            What::Memory(what) => what.run(),
        }
    }
}
