//! `buddy workload`: the paper's HPC programs and snapshots of their memory.

mod list;
mod run;

pub(crate) use buddy_scenario::decimal;
pub(crate) use run::measure;

use anyhow::Result;
use clap::{Args, Subcommand};

/// Run the paper's HPC programs and save snapshots of their memory
///
/// Ten compact programs with the numerical methods that the paper studied. Their values evolve by
/// real numerics, on any machine; docs/reference/workloads.md describes each.
#[derive(Args)]
#[command(after_help = "\
Examples:
  buddy workload list
  buddy workload run cg --scale 16MB --out cg
  buddy profile cg")]
pub(crate) struct Workload {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    List(list::List),
    Run(run::Run),
}

impl Workload {
    /// Runs the verb.
    pub(crate) fn run(self) -> Result<()> {
        match self.action {
            Action::List(list) => list.run(),
            Action::Run(run) => run.run(),
        }
    }
}
