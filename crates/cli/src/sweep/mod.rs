//! `buddy sweep`: many simulations from a file, on this machine or on others.

mod cluster;
mod results;
mod run;

pub(crate) use self::{cluster::Jobs, run::Place};

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use buddy_sweep::{Plan, Points, Store, Sweep};
use clap::{Args, Subcommand};

/// Run many simulations: every combination of settings that a plan asks for
///
/// A plan is a TOML file of axes (docs/guide/sweeps.md): any setting of `buddy simulate`, any field of a GPU's file, as values, lists
/// or ranges, crossed or zipped, with filters. Every point has a key of all that decides its result, and a store holds the
/// result of each once: the same command goes on where it was, and another plan takes what it shares.
///
/// `buddy sweep PLAN` is `buddy sweep run PLAN`.
#[derive(Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct SweepVerb {
    #[command(subcommand)]
    what: Option<What>,

    #[command(flatten)]
    run: run::Run,
}

#[derive(Subcommand)]
enum What {
    Run(run::Run),
    Status(cluster::Status),
    Collect(cluster::Collect),
    Cancel(cluster::Cancel),
    Table(results::Table),
    Page(results::PageVerb),
}

const EXAMPLES: &str = "\
A plan:
  [axes]
  program = [\"cg\", \"lulesh\"]
  mode = [\"ideal\", \"buddy\"]
  link = \"50..200 step 50\"
  l2.bytes = \"4MiB..16MiB times 2\"

Examples:
  buddy sweep links.toml --dry-run
  buddy sweep links.toml
  buddy sweep links.toml --on slurm --partition main --jobs 100
  buddy sweep run links.toml --shard 3/100
  buddy sweep table links.toml --columns program,mode,link,speed,capacity
  buddy sweep table links.toml --format csv > links.csv
  buddy sweep table links.toml --format record > links.json
  buddy sweep page links.toml --out links.html";

impl SweepVerb {
    /// Does the verb's job.
    pub(crate) fn run(self) -> Result<()> {
        match (self.what, self.run) {
            (Some(What::Run(verb)), _) | (None, verb) => verb.run(),
            (Some(What::Status(verb)), _) => verb.run(),
            (Some(What::Collect(verb)), _) => verb.run(),
            (Some(What::Cancel(verb)), _) => verb.run(),
            (Some(What::Table(verb)), _) => verb.run(),
            (Some(What::Page(verb)), _) => verb.run(),
        }
    }
}

/// Which sweep.
#[derive(Args, Clone)]
struct Which {
    /// The plan, a TOML file
    #[arg(value_name = "PLAN", required = true)]
    plan: Option<PathBuf>,

    /// Where results are kept; PLAN.sweep beside the plan unless given
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
}

impl Which {
    /// The plan's path, which the parser asks for unless there is a subcommand with one of its own.
    fn plan(&self) -> &Path {
        self.plan.as_deref().unwrap_or(Path::new(""))
    }

    /// The plan's text.
    fn text(&self) -> Result<String> {
        fs::read_to_string(self.plan()).with_context(|| self.plan().display().to_string())
    }

    fn points(&self) -> Result<Points> {
        let plan = Plan::read(self.plan())?;
        Points::of(plan).with_context(|| self.plan().display().to_string())
    }

    fn dir(&self) -> PathBuf {
        self.store.clone().unwrap_or_else(|| beside(self.plan()))
    }

    fn open(&self) -> Result<Sweep> {
        Ok(Sweep::new(self.points()?, Store::open(&self.dir())?)?)
    }
}

/// The usual place of a plan's results.
fn beside(plan: &Path) -> PathBuf {
    plan.with_extension("sweep")
}
