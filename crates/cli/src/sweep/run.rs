//! `buddy sweep run`: runs the remaining points, or estimates their cost.

use std::{sync::atomic::Ordering, thread, time::Duration};

use anyhow::{Result, bail};
use buddy_report::count;
use buddy_sweep::{Failure, Shard, Summary, Sweep, Tasks, Tries, Watch, local, shards, slurm};
use clap::{Args, ValueEnum};

use super::{Jobs, Which, cluster::on_slurm};
use crate::{STOPS_GRACEFULLY, output, progress::TimeLeft, say};

/// Programs above this footprint run one at a time.
const LARGE_BYTES: u64 = 512 << 20;
/// Maximum number of failed points to list.
const NAMED: usize = 10;

/// Run the remaining points of a plan
#[derive(Args)]
pub(crate) struct Run {
    #[command(flatten)]
    which: Which,

    /// Print the number of points and the estimated time, without running anything
    #[arg(long)]
    dry_run: bool,

    /// Run only shard I of N of about equal work, counted from 1; for schedulers other than Slurm
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,

    /// Run only the programs whose memory the points need, so that shards need not repeat them
    #[arg(long)]
    programs: bool,

    /// Simulations in parallel [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    threads: Option<u32>,

    /// Where points run
    #[arg(long, value_enum, default_value_t = Place::Local)]
    on: Place,

    /// With --on slurm: submit and exit; wait later with `buddy sweep collect`
    #[arg(long)]
    detach: bool,

    #[command(flatten)]
    jobs: Jobs,

    /// Retry points that failed in every attempt
    #[arg(long)]
    retry: bool,
}

/// Where work runs.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Place {
    /// The cores of this machine
    Local,
    /// Jobs on a Slurm cluster
    Slurm,
}

impl Run {
    /// Runs the verb.
    pub(crate) fn run(self) -> Result<()> {
        if self.dry_run {
            return self.print_estimate();
        }
        let sweep = self.which.open()?;
        let tries = Tries::of(sweep.store())?;
        if self.retry {
            tries.forget()?;
        }
        if self.shard.is_none() {
            match sweep.remove_broken()? {
                0 => {}
                many => say(format_args!("{many} incomplete records are made again")),
            }
        }
        if self.on == Place::Slurm {
            return on_slurm(&sweep, &self.which, &self.jobs, &tries, self.detach);
        }
        slurm::live(sweep.store().dir());
        STOPS_GRACEFULLY.store(true, Ordering::Relaxed);
        let bar = TimeLeft::with_lines_every(Duration::from_secs(10));
        let done = self.local(&sweep, &tries, &bar);
        bar.finish();
        let done = done?;
        if self.shard.is_none() && !self.programs {
            return report(&done, sweep.points().len(), &self.which);
        }
        say(format_args!("{} tasks of this shard are done", done.done));
        report_failures(&done)
    }

    fn local(&self, sweep: &Sweep, tries: &Tries, watch: &dyn Watch) -> Result<Summary> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let threads = self.threads.map_or(cores, |threads| threads as usize);
        let settings = local::Settings { threads, attempts: self.jobs.attempts };
        let part = |tasks: &dyn Tasks| match self.shard {
            Some(Shard { number, of }) => shards(tasks, of).swap_remove(number - 1),
            None => 0..tasks.len(),
        };
        let alone = sweep.footprint() > LARGE_BYTES;
        let runs = sweep.run_tasks();
        // A shard without --programs reads program runs from the store, or runs the missing ones
        // itself.
        let mut summary = Summary::default();
        if self.programs || self.shard.is_none() {
            let settings = local::Settings { threads: if alone { 1 } else { threads }, ..settings };
            summary = local::run(&runs, part(&runs), tries, settings, watch)?;
        }
        if self.programs || summary.interrupted {
            return Ok(summary);
        }
        let points = sweep.point_tasks();
        let done = local::run(&points, part(&points), tries, settings, watch)?;
        Ok(Summary { done: 0, ..summary }.and(done))
    }

    /// Prints the output of `--dry-run`.
    fn print_estimate(&self) -> Result<()> {
        let points = self.which.points()?;
        let all = points.len();
        let seconds: f64 = (0..all).map(|point| points.seconds(point)).sum();
        let store = self.which.dir();
        let done = if store.is_dir() {
            let kept = buddy_sweep::Store::open(&store)?.points();
            (0..all).filter(|point| kept.contains(&points.digest(*point))).count()
        } else {
            0
        };
        output::print(&format!(
            "{} points, {} of them done\nabout {} core hours for all, without the runs of programs\n{}\nstore: {}\n",
            count(all as u64),
            count(done as u64),
            hours(seconds),
            points.plan().shape(),
            store.display()
        ))
    }
}

/// Formats hours with two significant digits.
fn hours(seconds: f64) -> String {
    match seconds / 3600.0 {
        hours if hours < 0.1 => format!("{hours:.4}"),
        hours if hours < 10.0 => format!("{hours:.2}"),
        hours => count(hours.round() as u64),
    }
}

/// Prints the number of finished points and the failures.
pub(super) fn report(summary: &Summary, all: usize, which: &Which) -> Result<()> {
    say(format_args!("{} of {} points are done, in {}", summary.done, all, which.dir().display()));
    report_failures(summary)
}

fn report_failures(Summary { failed, interrupted, .. }: &Summary) -> Result<()> {
    for Failure { name, why } in failed.iter().take(NAMED) {
        say(format_args!("failed: {name}: {why}"));
    }
    if failed.len() > NAMED {
        say(format_args!("and {} more", failed.len() - NAMED));
    }
    match (interrupted, failed.len()) {
        (true, _) => bail!("interrupted; run the same command to continue"),
        (false, 0) => Ok(()),
        (false, many) => bail!("{many} failed; retry them with --retry"),
    }
}
