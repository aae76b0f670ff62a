//! `buddy trace`: traces of programs, from one format to the other, and what is in them.

mod convert;
mod info;
mod record;

use anyhow::Result;
use clap::{Args, Subcommand};

/// Trace a CUDA program on its GPU; convert traces, and say what is in them
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, after_help = AFTER_HELP)]
pub(crate) struct Trace {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    record: record::Record,
}

const AFTER_HELP: &str = "\
Examples:
  buddy trace --out traces -- ./my_program its arguments
  buddy trace --kernel gemm --count 1 -- python3 train.py
  buddy trace convert traces packed";

#[derive(Subcommand)]
enum What {
    Convert(convert::Convert),
    Info(info::Info),
}

impl Trace {
    pub(crate) fn run(self) -> Result<()> {
        match self.what {
            Some(What::Convert(convert)) => convert.run(),
            Some(What::Info(info)) => info.run(),
            None => self.record.run(),
        }
    }
}
