//! Engine for this machine: tasks in order, one per thread.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use crate::{Error, Failure, Progress, Summary, Tasks, Tries, Watch, tries::Try};

/// Number of threads and attempts.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Tasks in parallel.
    pub threads: usize,
    /// Failed attempts, by any process, before a task is given up.
    pub attempts: u32,
}

/// Own threads instead of a pool: a pool could give a thread that waits for a program another task.
struct Engine<'a> {
    tasks: &'a dyn Tasks,
    tries: &'a Tries,
    watch: &'a dyn Watch,
    left: Vec<usize>,
    next: AtomicUsize,
    stopped: AtomicBool,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    summary: Summary,
    seconds: f64,
    new: f64,
    all: f64,
    broken: Option<Error>,
}

/// Runs those tasks that are neither done nor given up.
///
/// # Errors
/// If the store cannot be written. A failed task is not an error: it is listed in the summary.
pub fn run(
    tasks: &dyn Tasks,
    chosen: impl IntoIterator<Item = usize>,
    tries: &Tries,
    settings: Settings,
    watch: &dyn Watch,
) -> Result<Summary, Error> {
    let (done, counts) = (tasks.done(), tries.counts());
    let mut known = Counts::default();
    let mut left = Vec::new();
    for task in chosen {
        known.all += tasks.seconds(task);
        if done[task] {
            known.seconds += tasks.seconds(task);
            known.summary.done += 1;
        } else if counts.get(&tasks.digest(task)).is_some_and(|count| *count >= settings.attempts) {
            let why = tries.words(tasks.digest(task));
            known.summary.failed.push(Failure { name: tasks.name(task), why });
        } else {
            left.push(task);
        }
    }
    let threads = settings.threads.clamp(1, left.len().max(1));
    let engine = Engine {
        tasks,
        tries,
        watch,
        left,
        next: AtomicUsize::new(0),
        stopped: AtomicBool::new(false),
        counts: Mutex::new(known),
    };
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(|| engine.work()))));
    let counts = engine.counts.into_inner().expect("no thread panics while holding the lock");
    counts.broken.map_or(Ok(counts.summary), Err)
}

impl Engine<'_> {
    fn work(&self) {
        while let Some(&task) = self.left.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            if !self.watch.goes_on() || self.stopped.load(Ordering::Relaxed) {
                self.counts().summary.interrupted = true;
                return;
            }
            match self.tries.begin(self.tasks.digest(task)) {
                Ok(begun) => self.one(task, begun),
                Err(error) => {
                    self.counts().broken = Some(error);
                    self.stopped.store(true, Ordering::Relaxed);
                }
            }
        }
    }

    fn one(&self, task: usize, begun: Try) {
        let name = self.tasks.name(task);
        // Another process may have finished it meanwhile.
        let found = self.tasks.is_done(task);
        match if found { Ok(true) } else { self.tasks.run(task, self.watch) } {
            Ok(true) => {
                begun.forget();
                let mut counts = self.counts();
                counts.summary.done += 1;
                counts.seconds += self.tasks.seconds(task);
                counts.new += if found { 0.0 } else { self.tasks.seconds(task) };
            }
            Ok(false) => {
                begun.forget();
                self.counts().summary.interrupted = true;
            }
            Err(why) => {
                begun.failed(&why);
                let mut counts = self.counts();
                counts.seconds += self.tasks.seconds(task);
                counts.summary.failed.push(Failure { name: name.clone(), why });
            }
        }
        self.tell(&name);
    }

    fn tell(&self, what: &str) {
        let counts = self.counts();
        self.watch.progress(&Progress { what, done: counts.seconds, new: counts.new, all: counts.all });
    }

    fn counts(&self) -> std::sync::MutexGuard<'_, Counts> {
        self.counts.lock().expect("no thread panics while holding the lock")
    }
}

#[cfg(test)]
mod tests;
