//! Status of a waiting collector, shown continuously.

use std::time::{Duration, Instant};

use super::States;
use crate::Error;

/// Longest time that the controller may be unreachable.
const PATIENCE: Duration = Duration::from_secs(1800);
/// Work without progress for this long is reported.
const LONG: Duration = Duration::from_secs(60);

/// A wait for jobs or for the controller.
pub(super) struct Wait {
    /// State of the jobs, from Slurm's last answer.
    jobs: String,
    /// Start of the outage and its last message; `None` if the controller answers.
    away: Option<(Instant, String)>,
    /// Number of remaining tasks, and the time of its last change.
    left: (usize, Instant),
}

impl Wait {
    pub(super) fn new() -> Self {
        Self { jobs: "jobs".to_owned(), away: None, left: (usize::MAX, Instant::now()) }
    }

    /// Notes an answer of the controller.
    pub(super) fn here(&mut self, states: &States) {
        (self.jobs, self.away) = (states.to_string(), None);
    }

    /// Notes a missing answer; an error after too long an outage.
    pub(super) fn away(&mut self, error: Error) -> Result<(), Error> {
        let since = self.away.take().map_or_else(Instant::now, |(since, _)| since);
        if since.elapsed() > PATIENCE {
            return Err(error);
        }
        self.away = Some((since, error.to_string()));
        Ok(())
    }

    /// Describes what is waited for, with `left` remaining tasks.
    pub(super) fn words(&mut self, left: usize) -> String {
        if left != self.left.0 {
            self.left = (left, Instant::now());
        }
        let still = self.left.1.elapsed();
        match &self.away {
            Some((since, why)) => {
                format!("waiting for the controller for {} s: {why}", since.elapsed().as_secs())
            }
            None if still >= LONG => format!("{}, nothing new for {} min", self.jobs, still.as_secs() / 60),
            None => self.jobs.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_names_the_reason_and_duration_of_a_wait() {
        let mut wait = Wait::new();
        assert_eq!(wait.words(7), "jobs");
        wait.here(&States { running: 2, waiting: 1, reason: "Resources".to_owned(), ..States::default() });
        assert_eq!(wait.words(7), "2 jobs run, 1 wait (Resources)");
        wait.left.1 = Instant::now().checked_sub(Duration::from_secs(150)).unwrap();
        assert_eq!(wait.words(7), "2 jobs run, 1 wait (Resources), nothing new for 2 min");
        assert_eq!(wait.words(6), "2 jobs run, 1 wait (Resources)");
        let gone = || Error::Slurm { command: "squeue", why: "no contact".to_owned() };
        wait.away(gone()).unwrap();
        assert_eq!(wait.words(6), "waiting for the controller for 0 s: squeue: no contact");
        let long_ago = Instant::now().checked_sub(PATIENCE + LONG).unwrap();
        wait.away = Some((long_ago, String::new()));
        assert!(wait.away(gone()).is_err(), "an endless wait");
    }
}
