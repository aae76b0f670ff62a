//! The Slurm jobs of a store: their states, submission and cancellation.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use buddy_core::digest;

use super::{
    command,
    jobs::{self, Job},
};
use crate::Error;

/// Options of `sbatch` besides the work.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Partition; `None` for Slurm's default.
    pub partition: Option<String>,
    /// Account to charge.
    pub account: Option<String>,
    /// Time limit of a job in Slurm's notation; `None` for ten times the estimate plus half an
    /// hour.
    pub time: Option<String>,
    /// Memory of a job in Slurm's notation.
    pub memory: String,
    /// CPUs of a job.
    pub cpus: u32,
    /// Jobs of a phase; `None` for a few minutes of work each.
    pub jobs: Option<usize>,
    /// Running jobs without a heartbeat for this long count as lost.
    pub silence: Duration,
    /// Other options of `sbatch`, unchanged.
    pub more: Vec<String>,
}

/// States of the jobs of a store, as Slurm reports them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct States {
    /// Pending jobs.
    pub waiting: usize,
    /// Running jobs.
    pub running: usize,
    /// Slurm's reason for the first pending job.
    pub reason: String,
    /// Ids of jobs listed as running without a heartbeat.
    pub silent: Vec<String>,
    /// Ids of pending jobs that Slurm will not start by itself.
    pub stuck: Vec<String>,
}

impl States {
    /// Returns whether there is no job to wait for.
    pub fn is_empty(&self) -> bool {
        self.waiting + self.running == 0
    }

    /// Returns the ids of lost jobs.
    fn lost(&self) -> Vec<&str> {
        self.silent.iter().chain(&self.stuck).map(String::as_str).collect()
    }

    fn count(&mut self, job: Job, is_silent: bool) {
        match job.is_waiting {
            true if job.is_stuck() => self.stuck.push(job.id),
            true => {
                self.waiting += 1;
                if self.reason.is_empty() {
                    self.reason = job.reason;
                }
            }
            false if is_silent => self.silent.push(job.id),
            false => self.running += 1,
        }
    }
}

impl fmt::Display for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} jobs run, {} wait", self.running, self.waiting)?;
        if self.reason.is_empty() { Ok(()) } else { write!(f, " ({})", self.reason) }
    }
}

/// Jobs of one store.
#[derive(Debug, Clone)]
pub struct Cluster {
    name: String,
    logs: PathBuf,
    program: PathBuf,
    options: Options,
}

/// A job array.
pub(super) struct Submission {
    pub(super) arguments: Vec<String>,
    /// Indices of the shards, from 1.
    pub(super) numbers: Vec<usize>,
    pub(super) of: usize,
    /// Estimated seconds of the longest shard.
    pub(super) longest: f64,
    /// Job that must end first.
    pub(super) after: Option<u64>,
}

/// Failure of a command: temporary (the controller is unreachable) or permanent.
pub(super) enum Refused {
    Now(Error),
    Ever(Error),
}

impl Refused {
    pub(super) fn of(error: Error) -> Self {
        // Messages while the controller starts, stops or is overloaded, and while munge is down.
        const AWAY: [&str; 13] = [
            "contact",
            "timed out",
            "zero bytes",
            "connection",
            "transport endpoint",
            "receive failure",
            "send failure",
            "header lengths",
            "unexpected message",
            "broken pipe",
            "standby",
            "temporarily",
            "authentication",
        ];
        let text = error.to_string().to_lowercase();
        if AWAY.iter().any(|word| text.contains(word)) { Self::Now(error) } else { Self::Ever(error) }
    }
}

impl Cluster {
    /// Creates the jobs that work on this store with this program, which must have the same path on
    /// every node.
    ///
    /// # Errors
    /// If the store is missing, or the folder for job output cannot be created.
    pub fn new(store: &Path, program: PathBuf, options: Options) -> Result<Self, Error> {
        let store = fs::canonicalize(store).map_err(Error::store(store))?;
        let logs = store.join("jobs");
        fs::create_dir_all(&logs).map_err(Error::store(&logs))?;
        let name = format!("buddy-{:012x}", digest(store.to_string_lossy().as_bytes()) >> 80);
        Ok(Self { name, logs, program, options })
    }

    /// Returns the name of its jobs, derived from the path of the store.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the folder of job output.
    pub fn logs(&self) -> PathBuf {
        self.logs.clone()
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the states of its jobs.
    ///
    /// # Errors
    /// An error of `squeue`.
    pub fn states(&self) -> Result<States, Error> {
        let name = format!("--name={}", self.name);
        let text = command::run("squeue", &["--noheader", "--array", jobs::FORMAT, &name])?;
        let (now, mut states) = (jobs::now(&self.logs), States::default());
        for job in text.lines().filter_map(Job::read) {
            let is_silent = job.is_silent(&self.logs, now, self.options.silence);
            states.count(job, is_silent);
        }
        Ok(states)
    }

    /// Returns the states, and cancels lost jobs in case they still run.
    pub(super) fn look(&self) -> Result<States, Refused> {
        let states = self.states().map_err(Refused::of)?;
        if !states.lost().is_empty() {
            let cancelled = command::run("scancel", &states.lost()).map_err(Refused::of);
            // Another collector may have cancelled it first; a job that has ended cannot be
            // cancelled.
            if let Err(Refused::Now(error)) = cancelled {
                return Err(Refused::Now(error));
            }
        }
        Ok(states)
    }

    /// Cancels all jobs; finished work is kept.
    ///
    /// # Errors
    /// An error of `scancel`.
    pub fn cancel(&self) -> Result<(), Error> {
        command::run("scancel", &[&format!("--name={}", self.name)]).map(drop)
    }

    /// Submits an array and returns its id.
    pub(super) fn submit(&self, work: &Submission) -> Result<u64, Error> {
        let arguments = self.arguments(work);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let said = command::run("sbatch", &arguments)?;
        let number = said.trim().split(';').next().and_then(|number| number.parse().ok());
        number.ok_or(Error::Slurm { command: "sbatch", why: format!("'{}' is not a job id", said.trim()) })
    }

    fn arguments(&self, work: &Submission) -> Vec<String> {
        let Options { partition, account, time, memory, cpus, more, .. } = &self.options;
        let minutes = (work.longest * 10.0 / 60.0).ceil() as u64 + 30;
        let mut all = vec![
            "--parsable".to_owned(),
            format!("--job-name={}", self.name),
            format!("--array={}", ranges(&work.numbers)),
            format!("--output={}", self.logs.join("%A_%a.out").display()),
            format!("--cpus-per-task={cpus}"),
            format!("--mem={memory}"),
            format!("--time={}", time.clone().unwrap_or_else(|| minutes.to_string())),
            "--requeue".to_owned(),
            "--open-mode=append".to_owned(),
        ];
        all.extend(partition.iter().map(|name| format!("--partition={name}")));
        all.extend(account.iter().map(|name| format!("--account={name}")));
        all.extend(work.after.map(|job| format!("--dependency=afterany:{job}")));
        all.extend(more.iter().cloned());
        all.push(format!("--wrap={}", self.script(work)));
        all
    }

    /// Returns the job script: `exec` of this program, so that signals reach it.
    fn script(&self, work: &Submission) -> String {
        let words =
            [self.program.to_string_lossy().into_owned()].into_iter().chain(work.arguments.iter().cloned());
        let words: Vec<String> = words.map(|word| quoted(&word)).collect();
        let (cpus, of) = (self.options.cpus, work.of);
        format!("export RAYON_NUM_THREADS={cpus}; exec {} --shard $SLURM_ARRAY_TASK_ID/{of}", words.join(" "))
    }
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Formats ascending numbers as Slurm ranges: `1-3,7`.
fn ranges(numbers: &[usize]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b);
    let run = |run: &[usize]| match run {
        [one] => one.to_string(),
        run => format!("{}-{}", run[0], run[run.len() - 1]),
    };
    runs.map(run).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn numbers_become_ranges() {
        assert_eq!(ranges(&[1, 2, 3, 7, 9, 10]), "1-3,7,9-10");
        assert_eq!(ranges(&[5]), "5");
    }

    #[test]
    fn a_job_has_limits_and_a_quoted_command_line() {
        let dir = tempfile::tempdir().unwrap();
        let options =
            Options { memory: "2G".to_owned(), cpus: 3, account: Some("x".to_owned()), ..Options::default() };
        let cluster = Cluster::new(dir.path(), PathBuf::from("/opt/it's/buddy"), options).unwrap();
        let arguments = vec!["sweep".to_owned(), "my plan.toml".to_owned()];
        let work = Submission { arguments, numbers: vec![1, 2], of: 7, longest: 600.0, after: Some(41) };
        let all = cluster.arguments(&work);
        for wanted in [
            "--array=1-2",
            "--mem=2G",
            "--time=130",
            "--cpus-per-task=3",
            "--account=x",
            "--dependency=afterany:41",
            "--requeue",
        ] {
            assert!(all.iter().any(|one| one == wanted), "{wanted}: {all:?}");
        }
        let script = cluster.script(&work).replace("exec ", "printf '%s|' ");
        let said = Command::new("sh").args(["-c", &script]).env("SLURM_ARRAY_TASK_ID", "5").output().unwrap();
        assert_eq!(String::from_utf8_lossy(&said.stdout), "/opt/it's/buddy|sweep|my plan.toml|--shard|5/7|");
    }

    #[test]
    fn running_pending_silent_and_stuck_jobs_are_told_apart() {
        let mut states = States::default();
        let lines = [
            ("1_1 RUNNING 0:10 None", false),
            ("1_2 RUNNING 9:10 None", true),
            ("1_3 PENDING 0:00 Resources", false),
            ("1_4 PENDING 0:00 Priority", false),
            ("1_5 PENDING 0:00 launch failed requeued held", false),
        ];
        for (line, is_silent) in lines {
            states.count(Job::read(line).unwrap(), is_silent);
        }
        assert_eq!(states.to_string(), "1 jobs run, 2 wait (Resources)");
        assert_eq!(states.lost(), ["1_2", "1_5"]);
    }

    #[test]
    fn an_unreachable_controller_is_a_temporary_failure() {
        let error = |why: &str| Error::Slurm { command: "sbatch", why: why.to_owned() };
        for away in [
            "Unable to contact slurm controller (connect failure)",
            "Socket timed out on send/recv operation",
            "Zero Bytes were transmitted or received",
            "slurm_load_jobs error: Communication connection failure",
            "Protocol authentication error",
        ] {
            assert!(matches!(Refused::of(error(away)), Refused::Now(_)), "{away}");
        }
        assert!(matches!(Refused::of(error("invalid partition specified: x")), Refused::Ever(_)));
    }
}
