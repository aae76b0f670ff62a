//! `buddy trace`: recording, converting and summarising traces.

mod convert;
mod info;
mod record;

use anyhow::Result;
use clap::{Args, Subcommand};

/// Trace a CUDA program on its GPU, convert traces, or summarise them
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, after_help = AFTER_HELP)]
pub(crate) struct Trace {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    record: record::Record,
}

const AFTER_HELP: &str = "\
Examples:
  buddy trace --out traces -- ./my_program arg1 arg2
  buddy trace --kernel gemm --count 1 -- python3 train.py
  buddy trace convert traces packed";

#[derive(Subcommand)]
enum Action {
    Convert(convert::Convert),
    Info(info::Info),
}

impl Trace {
    pub(crate) fn run(self) -> Result<()> {
        match self.action {
            Some(Action::Convert(convert)) => convert.run(),
            Some(Action::Info(info)) => info.run(),
            None => self.record.run(),
        }
    }
}
