//! `buddy sweep`: simulations from a plan, on this machine or a cluster.

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

/// Run every combination of the simulation settings in a plan
///
/// A plan is a TOML file of axes (docs/guide/sweeps.md): any setting of `buddy simulate` and any
/// field of a GPU's file, as values, lists or ranges, crossed or zipped, with filters. Each point
/// has a key of everything that decides its result, and a store keeps each result once. The same
/// command continues an interrupted sweep, and another plan reuses the points it shares.
///
/// `buddy sweep PLAN` is short for `buddy sweep run PLAN`.
#[derive(Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct SweepVerb {
    #[command(subcommand)]
    action: Option<Action>,

    #[command(flatten)]
    run: run::Run,
}

#[derive(Subcommand)]
enum Action {
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
    /// Runs the verb.
    pub(crate) fn run(self) -> Result<()> {
        match (self.action, self.run) {
            (Some(Action::Run(verb)), _) | (None, verb) => verb.run(),
            (Some(Action::Status(verb)), _) => verb.run(),
            (Some(Action::Collect(verb)), _) => verb.run(),
            (Some(Action::Cancel(verb)), _) => verb.run(),
            (Some(Action::Table(verb)), _) => verb.run(),
            (Some(Action::Page(verb)), _) => verb.run(),
        }
    }
}

/// The plan of a sweep and its store.
#[derive(Args, Clone)]
struct Which {
    /// Plan, a TOML file
    #[arg(value_name = "PLAN", required = true)]
    plan: Option<PathBuf>,

    /// Folder of the results [default: PLAN.sweep next to the plan]
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
}

impl Which {
    /// Returns the plan's path; required by the parser unless a subcommand has its own.
    fn plan(&self) -> &Path {
        self.plan.as_deref().unwrap_or(Path::new(""))
    }

    /// Reads the plan's text.
    fn text(&self) -> Result<String> {
        fs::read_to_string(self.plan()).with_context(|| self.plan().display().to_string())
    }

    fn points(&self) -> Result<Points> {
        let plan = Plan::read(self.plan())?;
        Points::of(plan).with_context(|| self.plan().display().to_string())
    }

    fn dir(&self) -> PathBuf {
        self.store.clone().unwrap_or_else(|| default_store(self.plan()))
    }

    fn open(&self) -> Result<Sweep> {
        Ok(Sweep::new(self.points()?, Store::open(&self.dir())?)?)
    }
}

/// Returns the default store of a plan.
fn default_store(plan: &Path) -> PathBuf {
    plan.with_extension("sweep")
}
