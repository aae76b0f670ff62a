//! `buddy sweep status`, `collect` and `cancel`, and what `--on slurm` takes.

use std::{fs, io::Write, path::PathBuf, sync::atomic::Ordering, time::Duration};

use anyhow::{Context, Result};
use buddy_core::digest;
use buddy_snapshot::write_atomic;
use buddy_sweep::{
    Sweep, Tasks, Tries,
    slurm::{self, Cluster, Options, Phase, States},
};
use clap::Args;

use super::{Which, run::report};
use crate::{FINISHES, output, progress::TimeLeft, say};

/// What jobs get, and how often a point is tried.
#[derive(Args, Clone)]
pub(crate) struct Jobs {
    /// With Slurm: the partition
    #[arg(long, value_name = "NAME")]
    partition: Option<String>,

    /// With Slurm: the account
    #[arg(long, value_name = "NAME")]
    account: Option<String>,

    /// With Slurm: limit of a job's time, as sbatch takes it; from the estimate unless given
    #[arg(long, value_name = "TIME")]
    time: Option<String>,

    /// With Slurm: memory of a job, as sbatch takes it; from the footprint of the programs unless given
    #[arg(long, value_name = "SIZE")]
    mem: Option<String>,

    /// With Slurm: processors of a job
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) cpus: u32,

    /// With Slurm: how many jobs; a few minutes of work for each unless given
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,

    /// With Slurm: seconds without a sign of life after which a job that is said to run is cancelled and its work submitted again
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(20..))]
    silence: u64,

    /// With Slurm: any other option of sbatch, such as --sbatch=--qos=low
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    sbatch: Vec<String>,

    /// Tries of a point that may fail or be killed before it is given up
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) attempts: u32,
}

impl Jobs {
    /// The jobs of a store, for programs of this footprint.
    pub(crate) fn cluster(&self, store: &std::path::Path, footprint: u64) -> Result<Cluster> {
        let options = Options {
            partition: self.partition.clone(),
            account: self.account.clone(),
            time: self.time.clone(),
            memory: self.mem.clone().unwrap_or_else(|| memory(footprint, self.cpus)),
            cpus: self.cpus,
            jobs: self.jobs,
            silence: Duration::from_secs(self.silence),
            more: self.sbatch.clone(),
        };
        let program = std::env::current_exe().context("this program's own path is not known")?;
        Ok(Cluster::new(store, program, options)?)
    }
}

/// Enough for a program, its size classes and the state of a simulation on every processor.
fn memory(footprint: u64, cpus: u32) -> String {
    format!("{}M", 1024 + u64::from(cpus) * (256 + 3 * (footprint >> 20)))
}

/// Submits what is left, and waits for it unless that is left to `collect`.
pub(super) fn on_slurm(sweep: &Sweep, which: &Which, jobs: &Jobs, tries: &Tries, detach: bool) -> Result<()> {
    let cluster = jobs.cluster(sweep.store().dir(), sweep.footprint())?;
    let plan = keep_plan(which, sweep)?;
    let (runs, points) = (sweep.run_tasks(), sweep.point_tasks());
    let phase = |tasks, more: &[&str]| Phase { tasks, arguments: arguments(&plan, sweep, jobs, more) };
    let phases = [phase(&runs as &dyn Tasks, &["--programs"]), phase(&points, &[])];
    if detach {
        let idle = cluster.states()?.is_empty();
        let said = match idle && slurm::submit(&cluster, &phases, tries, jobs.attempts)? {
            true => "submitted; `buddy sweep collect` waits and submits again what fails",
            false if idle => "nothing is left to do",
            false => "jobs are on their way already",
        };
        say(format_args!("{}: {said}", cluster.name()));
        return Ok(());
    }
    FINISHES.store(true, Ordering::Relaxed);
    let bar = TimeLeft::with_lines_every(Duration::from_secs(10));
    let done = slurm::collect(&cluster, &phases, tries, jobs.attempts, &bar);
    bar.finish();
    report(&done?, points.len(), which)
}

/// A copy of the plan that jobs read, so that it can be changed while they wait.
fn keep_plan(which: &Which, sweep: &Sweep) -> Result<PathBuf> {
    let text = which.text()?;
    let path = sweep.store().dir().join(format!("plan-{:032x}.toml", digest(text.as_bytes())));
    write_atomic(&path, |out| out.write_all(text.as_bytes()))?;
    Ok(fs::canonicalize(path)?)
}

fn arguments(plan: &std::path::Path, sweep: &Sweep, jobs: &Jobs, more: &[&str]) -> Vec<String> {
    let store = fs::canonicalize(sweep.store().dir()).unwrap_or_else(|_| sweep.store().dir().to_owned());
    let (plan, store) = (plan.to_string_lossy().into_owned(), store.to_string_lossy().into_owned());
    let (threads, attempts) = (jobs.cpus.to_string(), jobs.attempts.to_string());
    let words = ["sweep", "run", &plan, "--store", &store, "--threads", &threads, "--attempts", &attempts]
        .into_iter();
    words.chain(more.iter().copied()).map(str::to_owned).collect()
}

/// Say how many points are done, failed or left, and which jobs there are
#[derive(Args)]
pub(crate) struct Status {
    #[command(flatten)]
    which: Which,

    #[command(flatten)]
    jobs: Jobs,
}

impl Status {
    /// Does the verb's job.
    pub(crate) fn run(self) -> Result<()> {
        let sweep = self.which.open()?;
        let points = sweep.point_tasks();
        let (done, tries) = (points.done(), Tries::of(sweep.store())?.counts());
        let many = done.iter().filter(|done| **done).count();
        let failed = (0..points.len()).filter(|point| {
            !done[*point]
                && tries.get(&points.digest(*point)).is_some_and(|count| *count >= self.jobs.attempts)
        });
        let failed = failed.count();
        let programs = sweep.run_tasks();
        let run = programs.done().into_iter().filter(|done| *done).count();
        output::print(&format!(
            "{} points: {many} done, {failed} given up, {} left\n{run} of {} programs are run\n",
            points.len(),
            points.len() - many - failed,
            programs.len()
        ))?;
        match self.jobs.cluster(sweep.store().dir(), 0)?.states() {
            Ok(states) => {
                output::print(&format!("Slurm: {states}\n"))?;
                for (what, jobs) in
                    [("no sign of life", states.silent), ("Slurm will not start them", states.stuck)]
                {
                    if !jobs.is_empty() {
                        let jobs = jobs.join(", ");
                        say(format_args!(
                            "{what}: {jobs}; `buddy sweep collect` cancels them and submits again"
                        ));
                    }
                }
            }
            Err(error) => say(format_args!("{:#}", anyhow::Error::from(error))),
        }
        Ok(())
    }
}

/// Wait for the jobs of a sweep, and submit again what fails
#[derive(Args)]
pub(crate) struct Collect {
    #[command(flatten)]
    which: Which,

    #[command(flatten)]
    jobs: Jobs,
}

impl Collect {
    /// Does the verb's job.
    pub(crate) fn run(self) -> Result<()> {
        let sweep = self.which.open()?;
        let tries = Tries::of(sweep.store())?;
        on_slurm(&sweep, &self.which, &self.jobs, &tries, false)
    }
}

/// Cancel the jobs of a sweep; what they did stays
#[derive(Args)]
pub(crate) struct Cancel {
    #[command(flatten)]
    which: Which,

    #[command(flatten)]
    jobs: Jobs,
}

impl Cancel {
    /// Does the verb's job.
    pub(crate) fn run(self) -> Result<()> {
        let cluster = self.jobs.cluster(&self.which.dir(), 0)?;
        let States { waiting, running, silent, stuck, .. } = cluster.states()?;
        cluster.cancel()?;
        let all = waiting + running + silent.len() + stuck.len();
        say(format_args!("{}: cancelled {all} jobs", cluster.name()));
        Ok(())
    }
}
