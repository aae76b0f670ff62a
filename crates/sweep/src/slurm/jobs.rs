//! Jobs listed by Slurm, and their heartbeats.
//!
//! A controller that lost its state, or whose node hangs, may list a job as running that ended long
//! ago. So every job writes a heartbeat to the store, and a job without one for long counts as
//! lost. Ages are differences of times of the store's file system, since clocks of machines differ.

use std::{
    env, fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, SystemTime},
};

/// Heartbeat interval.
const BEAT: Duration = Duration::from_secs(10);

/// One job of an array, as listed by `squeue`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Job {
    /// Array id and index: `17_3`.
    pub(super) id: String,
    pub(super) is_waiting: bool,
    /// Run time as reported by Slurm.
    pub(super) runs: Duration,
    /// Slurm's reason for waiting.
    pub(super) reason: String,
}

/// Output format of `squeue`: id, state, time and reason.
pub(super) const FORMAT: &str = "--format=%F_%K %T %M %r";

/// Reasons of jobs that wait until an administrator acts: a node refused to start it, it was
/// requeued too often, or its dependency cannot be satisfied. Jobs held by a user have other
/// reasons.
const STUCK: [&str; 3] = ["launch failed requeued held", "JobHoldMaxRequeue", "DependencyNeverSatisfied"];

impl Job {
    /// Parses a line of `squeue`.
    pub(super) fn read(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let (id, state) = (words.next()?.to_owned(), words.next()?);
        let runs = words.next().and_then(duration).unwrap_or_default();
        // Some versions join words with underscores, as in `launch_failed_requeued_held`.
        let reason = words.collect::<Vec<_>>().join(" ").replace('_', " ");
        let is_waiting = matches!(state, "PENDING" | "REQUEUED" | "REQUEUE_HOLD" | "SPECIAL_EXIT");
        Some(Self { id, is_waiting, runs, reason })
    }

    /// Returns whether it waits for something that Slurm will not do by itself.
    pub(super) fn is_stuck(&self) -> bool {
        self.is_waiting && STUCK.contains(&self.reason.as_str())
    }

    /// Returns whether it runs without a heartbeat for `silence`; `now` is a time of the store's
    /// file system.
    pub(super) fn is_silent(&self, logs: &Path, now: SystemTime, silence: Duration) -> bool {
        let sign = modified(&sign(logs, &self.id));
        let age = sign.and_then(|sign| now.duration_since(sign).ok());
        // If the clock went back, the heartbeat counts as new.
        let age = if sign.is_some() { age.unwrap_or_default() } else { self.runs };
        !self.is_waiting && self.runs > silence && age > silence
    }
}

/// Returns the current time of the file system of this directory.
pub(super) fn now(logs: &Path) -> SystemTime {
    let path = logs.join("now");
    let _ = fs::write(&path, "now\n");
    modified(&path).unwrap_or_else(SystemTime::now)
}

/// Writes heartbeats for as long as this process lives, if it is a Slurm job.
pub fn live(store: &Path) {
    let variable = |name: &str| env::var(name).ok();
    let place = variable("SLURM_ARRAY_JOB_ID").zip(variable("SLURM_ARRAY_TASK_ID"));
    let Some((array, task)) = place else { return };
    let path = sign(&store.join("jobs"), &format!("{array}_{task}"));
    thread::spawn(move || {
        loop {
            // A failed write is ignored; the next may succeed.
            let _ = fs::write(&path, "alive\n");
            thread::sleep(BEAT);
        }
    });
}

fn sign(logs: &Path, id: &str) -> PathBuf {
    logs.join(format!("{id}.alive"))
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|about| about.modified()).ok()
}

/// Parses a time of `squeue`: `12:03`, `1:12:03` or `2-01:12:03`.
fn duration(text: &str) -> Option<Duration> {
    let (days, rest) = text.split_once('-').unwrap_or(("0", text));
    let mut seconds = days.parse::<u64>().ok()? * 24;
    let parts: Vec<u64> = rest.split(':').map(str::parse).collect::<Result<_, _>>().ok()?;
    let [hours, minutes, last] = match parts[..] {
        [minutes, seconds] => [0, minutes, seconds],
        [hours, minutes, seconds] => [hours, minutes, seconds],
        _ => return None,
    };
    seconds = ((seconds + hours) * 60 + minutes) * 60 + last;
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_squeue_are_parsed() {
        let job = Job::read("17_3 RUNNING 1-02:03:04 None").unwrap();
        let runs = Duration::from_secs(((24 + 2) * 60 + 3) * 60 + 4);
        assert_eq!(job, Job { id: "17_3".to_owned(), is_waiting: false, runs, reason: "None".to_owned() });
        assert_eq!(Job::read("17_3 RUNNING 2:05").unwrap().runs, Duration::from_secs(125));
        assert!(Job::read("17_4 PENDING 0:00").unwrap().is_waiting);
        assert!(Job::read("17_5 REQUEUE_HOLD 0:00 JobHeldUser").unwrap().is_waiting);
        assert!(Job::read("").is_none());
    }

    #[test]
    fn stuck_jobs_differ_from_held_jobs() {
        let is_stuck = |reason: &str| Job::read(&format!("2_5 PENDING 0:00 {reason}")).unwrap().is_stuck();
        assert!(is_stuck("launch failed requeued held"));
        assert!(is_stuck("launch_failed_requeued_held"));
        assert!(is_stuck("DependencyNeverSatisfied"));
        for reason in ["JobHeldUser", "JobHeldAdmin", "Resources", "Priority", "Dependency", "None", ""] {
            assert!(!is_stuck(reason), "{reason}");
        }
    }

    #[test]
    fn a_job_is_silent_once_its_heartbeat_is_old() {
        let dir = tempfile::tempdir().unwrap();
        let (logs, seconds) = (dir.path(), Duration::from_secs);
        let job = |state: &str, runs: &str| Job::read(&format!("1_2 {state} {runs}")).unwrap();
        let now = now(logs);
        // Without any heartbeat, its run time counts.
        assert!(!job("RUNNING", "0:59").is_silent(logs, now, seconds(60)));
        assert!(job("RUNNING", "1:01").is_silent(logs, now, seconds(60)));
        assert!(!job("PENDING", "1:01").is_silent(logs, now, seconds(60)));
        fs::write(sign(logs, "1_2"), "alive\n").unwrap();
        assert!(!job("RUNNING", "9:00").is_silent(logs, now, seconds(60)));
        assert!(job("RUNNING", "9:00").is_silent(logs, now + seconds(100), seconds(60)));
        // A job that was just restarted has not had time for a heartbeat.
        assert!(!job("RUNNING", "0:30").is_silent(logs, now + seconds(100), seconds(60)));
    }
}
