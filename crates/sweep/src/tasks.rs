//! Work that engines can do: tasks that leave a record each.

use crate::Watch;

/// Tasks, each of which leaves a record in a store. An engine may do them in any order, on any machine, and more than once.
pub trait Tasks: Sync {
    /// How many there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What a task is called in messages.
    fn name(&self, task: usize) -> String;

    /// What a task is known by in the store.
    fn digest(&self, task: usize) -> u128;

    /// Seconds of a core that a task takes, about.
    fn seconds(&self, task: usize) -> f64;

    /// Which tasks have their record.
    fn done(&self) -> Vec<bool>;

    /// Whether one task has its record.
    fn is_done(&self, task: usize) -> bool;

    /// Does a task and keeps its record; `false` if the watcher ended it early.
    ///
    /// # Errors
    /// A sentence, if it cannot be done.
    fn run(&self, task: usize, watch: &dyn Watch) -> Result<bool, String>;
}

/// A task that was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What it is called.
    pub name: String,
    /// What its tries said.
    pub why: String,
}

/// What an engine did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Tasks that have their record now.
    pub done: usize,
    /// Tasks that failed in this run, or were given up before.
    pub failed: Vec<Failure>,
    /// Whether it was interrupted, so that tasks are left.
    pub interrupted: bool,
}

impl Summary {
    /// Both together.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.done += other.done;
        self.failed.extend(other.failed);
        self.interrupted |= other.interrupted;
        self
    }
}
