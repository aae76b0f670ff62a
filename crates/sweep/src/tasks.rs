//! Tasks that each leave a record.

use crate::Watch;

/// Tasks that each leave a record in a store. An engine may run them in any order, on any machine,
/// and more than once.
pub trait Tasks: Sync {
    /// Returns the number of tasks.
    fn len(&self) -> usize;

    /// Returns whether there are no tasks.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a task's name for messages.
    fn name(&self, task: usize) -> String;

    /// Returns a task's digest in the store.
    fn digest(&self, task: usize) -> u128;

    /// Estimates the core seconds of a task.
    fn seconds(&self, task: usize) -> f64;

    /// Returns, for each task, whether its record exists.
    fn done(&self) -> Vec<bool>;

    /// Returns whether a task's record exists.
    fn is_done(&self, task: usize) -> bool;

    /// Runs a task and saves its record; returns false if the watch stopped it.
    ///
    /// # Errors
    /// A message if it fails.
    fn run(&self, task: usize, watch: &dyn Watch) -> Result<bool, String>;
}

/// A task that was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Name of the task.
    pub name: String,
    /// Errors of its attempts.
    pub why: String,
}

/// Result of an engine's run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Tasks with a record.
    pub done: usize,
    /// Tasks that failed in this run or were given up before.
    pub failed: Vec<Failure>,
    /// True if it was interrupted, so that tasks are left.
    pub interrupted: bool,
}

impl Summary {
    /// Combines two summaries.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.done += other.done;
        self.failed.extend(other.failed);
        self.interrupted |= other.interrupted;
        self
    }
}
