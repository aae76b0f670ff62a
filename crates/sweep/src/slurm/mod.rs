//! Engine for a Slurm cluster: job arrays, each job running a shard of the tasks with this same
//! program.
//!
//! Only the name of the jobs is fixed. The store knows the remaining work, and Slurm the pending
//! jobs. Tasks of jobs that failed, were preempted, killed, forgotten or lost are submitted again.
//! A collector may be killed too, and two may run at once.

mod cluster;
mod command;
mod jobs;
mod wait;

use std::{
    thread,
    time::{Duration, Instant},
};

pub use self::{
    cluster::{Cluster, Options, States},
    jobs::live,
};
use self::{
    cluster::{Refused, Submission},
    wait::Wait,
};
use crate::{Error, Failure, Progress, Summary, Tasks, Tries, Watch, shards};

/// Target work of a job in core seconds: enough to hide its start-up, short enough that nodes
/// finish together.
const JOB_SECONDS: f64 = 30.0;
/// Maximum size of an array; Slurm's default limit is 1001.
const MOST_JOBS: usize = 1000;

/// Tasks, and the arguments with which this program runs a shard of them.
pub struct Phase<'a> {
    /// The tasks.
    pub tasks: &'a dyn Tasks,
    /// Command line without `--shard I/N`, which is appended.
    pub arguments: Vec<String>,
}

/// Tasks of a phase that are neither done nor given up.
struct Left {
    missing: Vec<bool>,
    count: usize,
    seconds: f64,
}

/// Submits all remaining work, each phase after the previous one; returns false if none is left.
///
/// # Errors
/// An error of Slurm.
pub fn submit(cluster: &Cluster, phases: &[Phase<'_>], tries: &Tries, attempts: u32) -> Result<bool, Error> {
    let mut after = None;
    for phase in phases {
        let left = left(phase.tasks, tries, attempts);
        if left.count > 0 {
            after = Some(cluster.submit(&submission(cluster, phase, &left, after))?);
        }
    }
    Ok(after.is_some())
}

/// Waits until every task is done or given up, and resubmits work that jobs leave undone.
///
/// # Errors
/// An error of Slurm, an unreachable controller, or jobs without progress. An interruption is not
/// an error: jobs continue.
pub fn collect(
    cluster: &Cluster,
    phases: &[Phase<'_>],
    tries: &Tries,
    attempts: u32,
    watch: &dyn Watch,
) -> Result<Summary, Error> {
    let (mut before, mut stalls) = (usize::MAX, 0);
    let mut wait = Wait::new();
    let begun = done_seconds(phases).0;
    while watch.goes_on() {
        let looked = Instant::now();
        // Jobs that are still listed have nothing left to do.
        if phases.iter().all(|phase| phase.tasks.done().iter().all(|done| *done)) {
            return Ok(summary(phases, tries, attempts, false));
        }
        let now: usize = phases.iter().map(|phase| left(phase.tasks, tries, attempts).count).sum();
        tell(phases, begun, watch, &wait.words(now));
        let asked = cluster.look().and_then(|states| match (states.is_empty(), now) {
            (false, _) => Ok(Some(states)),
            (true, 0) => Ok(None),
            (true, _) => {
                stalls = if now < before { 0 } else { stalls + 1 };
                before = now;
                if stalls >= attempts {
                    return Err(Refused::Ever(Error::Stalled { rounds: stalls, logs: cluster.logs() }));
                }
                submit(cluster, phases, tries, attempts).map(|_| Some(states)).map_err(Refused::of)
            }
        });
        match asked {
            Ok(None) => return Ok(summary(phases, tries, attempts, false)),
            Ok(Some(states)) => wait.here(&states),
            Err(Refused::Ever(error)) => return Err(error),
            Err(Refused::Now(error)) => wait.away(error)?,
        }
        pause(looked.elapsed(), watch);
    }
    Ok(summary(phases, tries, attempts, true))
}

/// Sleeps a second, or longer if the last query was slow.
fn pause(look: Duration, watch: &dyn Watch) {
    let end = Instant::now() + (20 * look).clamp(Duration::from_secs(1), Duration::from_secs(30));
    while watch.goes_on() && Instant::now() < end {
        thread::sleep(Duration::from_millis(100));
    }
}

fn left(tasks: &dyn Tasks, tries: &Tries, attempts: u32) -> Left {
    let (done, counts) = (tasks.done(), tries.counts());
    let given_up = |task| counts.get(&tasks.digest(task)).is_some_and(|count| *count >= attempts);
    let missing: Vec<bool> = done.iter().enumerate().map(|(task, done)| !done && !given_up(task)).collect();
    let all = || missing.iter().enumerate().filter(|(_, missing)| **missing).map(|(task, _)| task);
    Left { count: all().count(), seconds: all().map(|task| tasks.seconds(task)).sum(), missing }
}

/// Returns the shards with work left, cut so that they form about the requested number of jobs.
fn submission(cluster: &Cluster, phase: &Phase<'_>, left: &Left, after: Option<u64>) -> Submission {
    let all: f64 = (0..phase.tasks.len()).map(|task| phase.tasks.seconds(task)).sum();
    let cores = f64::from(cluster.options().cpus.max(1));
    let wanted = cluster.options().jobs.unwrap_or((left.seconds / cores / JOB_SECONDS).ceil() as usize);
    let wanted = wanted.clamp(1, left.count.min(MOST_JOBS));
    let finer = all.max(1e-6) / left.seconds.max(1e-6);
    let of =
        ((wanted as f64 * finer).ceil() as usize).clamp(wanted, MOST_JOBS.min(phase.tasks.len()).max(wanted));
    let cut = shards(phase.tasks, of);
    let has_work = |range: &std::ops::Range<usize>| left.missing[range.clone()].contains(&true);
    let numbers: Vec<usize> =
        cut.iter().enumerate().filter(|(_, range)| has_work(range)).map(|(index, _)| index + 1).collect();
    let seconds =
        |range: &std::ops::Range<usize>| range.clone().map(|task| phase.tasks.seconds(task)).sum::<f64>();
    let longest = cut.iter().map(seconds).fold(0.0, f64::max) / cores;
    Submission { arguments: phase.arguments.clone(), numbers, of, longest, after }
}

/// Returns the seconds of finished work, and of all work.
fn done_seconds(phases: &[Phase<'_>]) -> (f64, f64) {
    let (mut done, mut all) = (0.0, 0.0);
    for tasks in phases.iter().map(|phase| phase.tasks) {
        for (task, is_done) in tasks.done().into_iter().enumerate() {
            let seconds = tasks.seconds(task).max(1e-6);
            all += seconds;
            done += if is_done { seconds } else { 0.0 };
        }
    }
    (done, all)
}

fn tell(phases: &[Phase<'_>], begun: f64, watch: &dyn Watch, what: &str) {
    let (done, all) = done_seconds(phases);
    watch.progress(&Progress { what, done, new: done - begun, all });
}

/// Summarises the finished tasks of the last phase, and the given-up tasks of all.
fn summary(phases: &[Phase<'_>], tries: &Tries, attempts: u32, interrupted: bool) -> Summary {
    let counts = tries.counts();
    let mut summary = Summary { interrupted, ..Summary::default() };
    for tasks in phases.iter().map(|phase| phase.tasks) {
        let done = tasks.done();
        summary.done = done.iter().filter(|done| **done).count();
        for task in (0..tasks.len()).filter(|task| !done[*task]) {
            if counts.get(&tasks.digest(task)).is_some_and(|count| *count >= attempts) {
                summary.failed.push(Failure { name: tasks.name(task), why: tries.words(tasks.digest(task)) });
            }
        }
    }
    summary
}
