//! `buddy workload`: the paper's programs, and what their memory holds.

mod list;
mod run;

pub(crate) use buddy_scenario::decimal;
pub(crate) use run::measure;

use anyhow::Result;
use clap::{Args, Subcommand};

/// Run the paper's HPC programs and keep what their memory holds
///
/// Ten compact programs of the methods that the paper studied. Their values evolve by real numerics, on any
/// machine; docs/explain/workloads.md describes each.
#[derive(Args)]
#[command(after_help = "\
Examples:
  buddy workload list
  buddy workload run cg --scale 16MB --out cg
  buddy profile cg")]
pub(crate) struct Workload {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    List(list::List),
    Run(run::Run),
}

impl Workload {
    /// Does the verb's job.
    pub(crate) fn run(self) -> Result<()> {
        match self.what {
            What::List(list) => list.run(),
            What::Run(run) => run.run(),
        }
    }
}
