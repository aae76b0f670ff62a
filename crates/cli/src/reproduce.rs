//! `buddy reproduce`: every figure and table of the paper.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::atomic::Ordering,
};

use anyhow::{Context, Result, bail};
use buddy_report::summary_table_text;
use buddy_snapshot::Claim;
use buddy_study::{Engine, Request, Settings, docs, output, reproduce};
use buddy_sweep::{Shard, slurm};
use buddy_workloads::ALL;
use clap::Args;

use crate::{
    STOPS_GRACEFULLY,
    output::make_folder,
    progress::TimeLeft,
    say,
    sweep::{Jobs, Place},
};

/// Reproduce every figure and table of the paper, as records and one HTML page
///
/// Runs the ten HPC programs and measures their memory, takes the deep-learning runs from their
/// records, simulates, and draws each figure next to the paper's numbers. The page is
/// DIR/index.html. Each figure is also a record in DIR/records and a picture in DIR/figures.
///
/// Finished work is kept: after an interruption the same command continues. Ctrl-C writes a page of
/// the finished figures.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Reproduce {
    /// Run everything at a tiny scale, in less than two minutes
    #[arg(long, conflicts_with = "full")]
    quick: bool,

    /// Use the paper's footprints; takes hours
    #[arg(long)]
    full: bool,

    /// Make only this figure or table; repeatable
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,

    /// Simulate nothing: show recorded simulations only, as the documentation does
    #[arg(long)]
    no_simulations: bool,

    /// Folder to write to
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Update the tables and pictures that the Markdown pages in this folder ask for
    #[arg(long, value_name = "DIR", conflicts_with_all = ["quick", "full"])]
    docs: Option<PathBuf>,

    /// Read the recorded training runs from this folder instead of the built-in ones
    #[arg(long, value_name = "DIR")]
    recorded: Option<PathBuf>,

    /// Where programs and simulations run
    #[arg(long, value_enum, default_value_t = Place::Local)]
    on: Place,

    #[command(flatten)]
    jobs: Jobs,

    /// Run only shard I of N of the simulations, counted from 1, and draw no figures; for
    /// schedulers other than Slurm
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,

    /// With --shard: run that shard of the programs, which the simulations need first
    #[arg(long, requires = "shard")]
    programs: bool,
}

const EXAMPLES: &str = "\
Examples:
  A first look, in less than two minutes:
    buddy reproduce --quick --out out

  The results in the documentation, in less than 45 minutes on two cores:
    buddy reproduce --out out

  The tables and pictures of the documentation:
    buddy reproduce --no-simulations --docs docs --out out

  Two figures:
    buddy reproduce --only fig7 --only fig9 --out out

  The paper's footprints, on a cluster:
    buddy reproduce --full --on slurm --partition main --out out";

impl Reproduce {
    /// Runs the verb.
    pub(crate) fn run(self) -> Result<()> {
        let settings = match (self.quick, self.full) {
            (true, _) => Settings::QUICK,
            (_, true) => Settings::FULL,
            _ => Settings::DEFAULT,
        };
        STOPS_GRACEFULLY.store(true, Ordering::Relaxed);
        make_folder(&self.out)?;
        // Shards share the directory; a run that draws claims it.
        let _claim = if self.shard.is_none() { Some(Claim::new(&self.out)?) } else { None };
        let records = self.out.join("records");
        let engine = self.engine(&settings, &records)?;
        let is_shard = matches!(engine, Engine::Shard { .. });
        let Self { only, recorded, .. } = self;
        let request = Request { settings, only, simulates: !self.no_simulations, records, recorded, engine };
        let bar = TimeLeft::new();
        let done = reproduce(&request, &bar);
        bar.finish();
        let done = done?;
        if is_shard {
            return if done.interrupted {
                bail!("interrupted; run the same command to continue")
            } else {
                Ok(())
            };
        }
        output::write(&self.out, &settings, &done)?;
        if let Some(dir) = self.docs.filter(|_| !done.interrupted) {
            docs::write(&dir, &done.figures)?;
        }
        print(&summary_table_text(&done.figures))?;
        if !settings.caution().is_empty() {
            say(settings.caution());
        }
        let page = self.out.join("index.html");
        let figures = done.figures.len();
        say(format_args!("{figures} figure{} in {}", if figures == 1 { "" } else { "s" }, page.display()));
        if done.interrupted {
            bail!("interrupted: the page lists what is missing; run the same command to continue");
        }
        Ok(())
    }

    /// Returns the engine that runs the work.
    fn engine(&self, settings: &Settings, records: &Path) -> Result<Engine> {
        let attempts = self.jobs.attempts;
        if let Some(shard) = self.shard {
            let threads = self.jobs.cpus as usize;
            slurm::live(records);
            return Ok(Engine::Shard { shard, programs: self.programs, threads, attempts });
        }
        if self.on == Place::Local {
            return Ok(Engine::Local);
        }
        make_folder(records)?;
        let footprint = ALL.iter().map(|info| settings.bytes_of(info)).max().unwrap_or(0);
        let cluster = self.jobs.cluster(records, footprint)?;
        let mut arguments: Vec<String> = ["reproduce", "--out"].map(str::to_owned).into();
        arguments.push(fs::canonicalize(&self.out)?.to_string_lossy().into_owned());
        arguments.extend((settings.name != "default").then(|| format!("--{}", settings.name)));
        arguments.extend(self.no_simulations.then(|| "--no-simulations".to_owned()));
        arguments.extend(self.only.iter().map(|name| format!("--only={name}")));
        arguments.extend(self.recorded.iter().map(|dir| format!("--recorded={}", dir.display())));
        arguments.extend([format!("--cpus={}", self.jobs.cpus), format!("--attempts={attempts}")]);
        Ok(Engine::Slurm { cluster: Box::new(cluster), arguments, attempts })
    }
}

fn print(text: &str) -> Result<()> {
    io::stdout().write_all(text.as_bytes()).context("cannot write to stdout")
}
