//! The jobs that Slurm lists, and whether they live.
//!
//! A controller that died without saving its state may list a job as running that ended long ago, and so may one whose node
//! hangs. So every job leaves a sign of life in the store while it works; one without a sign for long is waited for no more.
//! Ages are differences of times that the store's file system gave, since clocks of machines differ.

use std::{
    env, fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, SystemTime},
};

/// Between two signs of life.
const BEAT: Duration = Duration::from_secs(10);

/// One job of an array, as `squeue` lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Job {
    /// The array and the place in it: `17_3`.
    pub(super) id: String,
    pub(super) is_waiting: bool,
    /// How long it runs, as Slurm sees it.
    pub(super) runs: Duration,
    /// Why it waits, in Slurm's words.
    pub(super) reason: String,
}

/// What `squeue` is asked for: number, state, time and reason of each.
pub(super) const FORMAT: &str = "--format=%F_%K %T %M %r";

/// Reasons of jobs that wait until somebody acts, and that nobody chose: a node would not start it (one that has it still from
/// before its controller died), it was started again too often, or what it depends on cannot come. A job that a person holds
/// has another.
const STUCK: [&str; 3] = ["launch failed requeued held", "JobHoldMaxRequeue", "DependencyNeverSatisfied"];

impl Job {
    /// Reads a line of `squeue`.
    pub(super) fn read(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let (id, state) = (words.next()?.to_owned(), words.next()?);
        let runs = words.next().and_then(duration).unwrap_or_default();
        // Some versions write one word of many, as in `launch_failed_requeued_held`.
        let reason = words.collect::<Vec<_>>().join(" ").replace('_', " ");
        let is_waiting = matches!(state, "PENDING" | "REQUEUED" | "REQUEUE_HOLD" | "SPECIAL_EXIT");
        Some(Self { id, is_waiting, runs, reason })
    }

    /// Whether it waits for what Slurm will not do by itself.
    pub(super) fn is_stuck(&self) -> bool {
        self.is_waiting && STUCK.contains(&self.reason.as_str())
    }

    /// Whether it should run and has given no sign of life for so long; `now` is a time of the store's file system.
    pub(super) fn is_silent(&self, logs: &Path, now: SystemTime, silence: Duration) -> bool {
        let sign = modified(&sign(logs, &self.id));
        let age = sign.and_then(|sign| now.duration_since(sign).ok());
        // A clock that went back makes a sign that is not old.
        let age = if sign.is_some() { age.unwrap_or_default() } else { self.runs };
        !self.is_waiting && self.runs > silence && age > silence
    }
}

/// The time now, as the file system that holds this directory has it.
pub(super) fn now(logs: &Path) -> SystemTime {
    let path = logs.join("now");
    let _ = fs::write(&path, "now\n");
    modified(&path).unwrap_or_else(SystemTime::now)
}

/// Gives signs of life for as long as this process lives, if it is a job of Slurm's.
pub fn live(store: &Path) {
    let variable = |name: &str| env::var(name).ok();
    let place = variable("SLURM_ARRAY_JOB_ID").zip(variable("SLURM_ARRAY_TASK_ID"));
    let Some((array, task)) = place else { return };
    let path = sign(&store.join("jobs"), &format!("{array}_{task}"));
    thread::spawn(move || {
        loop {
            // One that cannot be written is not worth failing for; the next may.
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

/// A time as `squeue` writes it: `12:03`, `1:12:03` or `2-01:12:03`.
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
    fn lines_of_squeue_are_read() {
        let job = Job::read("17_3 RUNNING 1-02:03:04 None").unwrap();
        let runs = Duration::from_secs(((24 + 2) * 60 + 3) * 60 + 4);
        assert_eq!(job, Job { id: "17_3".to_owned(), is_waiting: false, runs, reason: "None".to_owned() });
        assert_eq!(Job::read("17_3 RUNNING 2:05").unwrap().runs, Duration::from_secs(125));
        assert!(Job::read("17_4 PENDING 0:00").unwrap().is_waiting);
        assert!(Job::read("17_5 REQUEUE_HOLD 0:00 JobHeldUser").unwrap().is_waiting);
        assert!(Job::read("").is_none());
    }

    #[test]
    fn a_job_that_no_one_will_start_is_told_from_one_that_is_held() {
        let is_stuck = |reason: &str| Job::read(&format!("2_5 PENDING 0:00 {reason}")).unwrap().is_stuck();
        assert!(is_stuck("launch failed requeued held"));
        assert!(is_stuck("launch_failed_requeued_held"));
        assert!(is_stuck("DependencyNeverSatisfied"));
        for reason in ["JobHeldUser", "JobHeldAdmin", "Resources", "Priority", "Dependency", "None", ""] {
            assert!(!is_stuck(reason), "{reason}");
        }
    }

    #[test]
    fn a_job_is_silent_once_its_last_sign_is_old() {
        let dir = tempfile::tempdir().unwrap();
        let (logs, seconds) = (dir.path(), Duration::from_secs);
        let job = |state: &str, runs: &str| Job::read(&format!("1_2 {state} {runs}")).unwrap();
        let now = now(logs);
        // Without any sign, from when it began.
        assert!(!job("RUNNING", "0:59").is_silent(logs, now, seconds(60)));
        assert!(job("RUNNING", "1:01").is_silent(logs, now, seconds(60)));
        assert!(!job("PENDING", "1:01").is_silent(logs, now, seconds(60)));
        fs::write(sign(logs, "1_2"), "alive\n").unwrap();
        assert!(!job("RUNNING", "9:00").is_silent(logs, now, seconds(60)));
        assert!(job("RUNNING", "9:00").is_silent(logs, now + seconds(100), seconds(60)));
        // A job that was started again only now has not had the time.
        assert!(!job("RUNNING", "0:30").is_silent(logs, now + seconds(100), seconds(60)));
    }
}
