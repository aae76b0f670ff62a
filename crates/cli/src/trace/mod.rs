//! `buddy trace`: traces from one format to the other, and what is in them.

mod convert;
mod info;

use anyhow::Result;
use clap::{Args, Subcommand};

/// Convert traces, and say what is in them
#[derive(Args)]
pub(crate) struct Trace {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Convert(convert::Convert),
    Info(info::Info),
}

impl Trace {
    pub(crate) fn run(self) -> Result<()> {
        match self.what {
            What::Convert(convert) => convert.run(),
            What::Info(info) => info.run(),
        }
    }
}
