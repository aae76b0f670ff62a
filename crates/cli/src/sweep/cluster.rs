//! `buddy sweep status`, `collect` and `cancel`, and the options of `--on slurm`.

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
use crate::{STOPS_GRACEFULLY, output, progress::TimeLeft, say};

/// Resources of Slurm jobs, and the number of attempts per point.
#[derive(Args, Clone)]
pub(crate) struct Jobs {
    /// Slurm partition
    #[arg(long, value_name = "NAME")]
    partition: Option<String>,

    /// Slurm account
    #[arg(long, value_name = "NAME")]
    account: Option<String>,

    /// Time limit of a Slurm job, as for sbatch [default: from the estimate]
    #[arg(long, value_name = "TIME")]
    time: Option<String>,

    /// Memory of a Slurm job, as for sbatch [default: from the programs' footprint]
    #[arg(long, value_name = "SIZE")]
    mem: Option<String>,

    /// CPUs of a Slurm job
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) cpus: u32,

    /// Number of Slurm jobs [default: a few minutes of work each]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,

    /// Cancel and resubmit a running Slurm job after this many seconds without a heartbeat
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(20..))]
    silence: u64,

    /// Any other sbatch option, such as --sbatch=--qos=low
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    sbatch: Vec<String>,

    /// Attempts per point before it counts as failed
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) attempts: u32,
}

impl Jobs {
    /// Returns the cluster of a store, for programs of this footprint in bytes.
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
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        Ok(Cluster::new(store, program, options)?)
    }
}

/// Returns the memory for a program, its size classes and one simulation per CPU.
fn memory(footprint: u64, cpus: u32) -> String {
    format!("{}M", 1024 + u64::from(cpus) * (256 + 3 * (footprint >> 20)))
}

/// Submits the remaining work, and waits for it unless `detach` is set.
pub(super) fn on_slurm(sweep: &Sweep, which: &Which, jobs: &Jobs, tries: &Tries, detach: bool) -> Result<()> {
    let cluster = jobs.cluster(sweep.store().dir(), sweep.footprint())?;
    let plan = keep_plan(which, sweep)?;
    let (runs, points) = (sweep.run_tasks(), sweep.point_tasks());
    let phase = |tasks, more: &[&str]| Phase { tasks, arguments: arguments(&plan, sweep, jobs, more) };
    let phases = [phase(&runs as &dyn Tasks, &["--programs"]), phase(&points, &[])];
    if detach {
        let idle = cluster.states()?.is_empty();
        let status = match idle && slurm::submit(&cluster, &phases, tries, jobs.attempts)? {
            true => "submitted; `buddy sweep collect` waits and resubmits failed jobs",
            false if idle => "nothing left to do",
            false => "jobs are already submitted",
        };
        say(format_args!("{}: {status}", cluster.name()));
        return Ok(());
    }
    STOPS_GRACEFULLY.store(true, Ordering::Relaxed);
    let bar = TimeLeft::with_lines_every(Duration::from_secs(10));
    let done = slurm::collect(&cluster, &phases, tries, jobs.attempts, &bar);
    bar.finish();
    report(&done?, points.len(), which)
}

/// Copies the plan for the jobs, so that the original can change while they wait.
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

/// Show how many points are done, failed or left, and the state of the jobs
#[derive(Args)]
pub(crate) struct Status {
    #[command(flatten)]
    which: Which,

    #[command(flatten)]
    jobs: Jobs,
}

impl Status {
    /// Runs the verb.
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
            "{} points: {many} done, {failed} failed, {} left\n{run} of {} programs have run\n",
            points.len(),
            points.len() - many - failed,
            programs.len()
        ))?;
        match self.jobs.cluster(sweep.store().dir(), 0)?.states() {
            Ok(states) => {
                output::print(&format!("Slurm: {states}\n"))?;
                for (what, jobs) in
                    [("no heartbeat", states.silent), ("Slurm will not start them", states.stuck)]
                {
                    if !jobs.is_empty() {
                        let jobs = jobs.join(", ");
                        say(format_args!("{what}: {jobs}; `buddy sweep collect` cancels and resubmits them"));
                    }
                }
            }
            Err(error) => say(format_args!("{:#}", anyhow::Error::from(error))),
        }
        Ok(())
    }
}

/// Wait for the jobs of a sweep, and resubmit failed ones
#[derive(Args)]
pub(crate) struct Collect {
    #[command(flatten)]
    which: Which,

    #[command(flatten)]
    jobs: Jobs,
}

impl Collect {
    /// Runs the verb.
    pub(crate) fn run(self) -> Result<()> {
        let sweep = self.which.open()?;
        let tries = Tries::of(sweep.store())?;
        on_slurm(&sweep, &self.which, &self.jobs, &tries, false)
    }
}

/// Cancel the jobs of a sweep; finished points are kept
#[derive(Args)]
pub(crate) struct Cancel {
    #[command(flatten)]
    which: Which,

    #[command(flatten)]
    jobs: Jobs,
}

impl Cancel {
    /// Runs the verb.
    pub(crate) fn run(self) -> Result<()> {
        let cluster = self.jobs.cluster(&self.which.dir(), 0)?;
        let States { waiting, running, silent, stuck, .. } = cluster.states()?;
        cluster.cancel()?;
        let all = waiting + running + silent.len() + stuck.len();
        say(format_args!("{}: cancelled {all} jobs", cluster.name()));
        Ok(())
    }
}
