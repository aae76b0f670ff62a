use std::{collections::BTreeSet, sync::atomic::AtomicI64};

use super::*;
use crate::{NoWatch, Store};

/// Tasks that count their runs; some fail, and after a number of them the watch stops the work.
struct Made {
    count: usize,
    fails: BTreeSet<usize>,
    done: Mutex<BTreeSet<usize>>,
    runs: Mutex<Vec<usize>>,
}

impl Made {
    fn new(count: usize, fails: &[usize]) -> Self {
        let fails = fails.iter().copied().collect();
        Self { count, fails, done: Mutex::default(), runs: Mutex::default() }
    }
}

impl Tasks for Made {
    fn len(&self) -> usize {
        self.count
    }
    fn name(&self, task: usize) -> String {
        format!("task {task}")
    }
    fn digest(&self, task: usize) -> u128 {
        task as u128
    }
    fn seconds(&self, _: usize) -> f64 {
        1.0
    }
    fn done(&self) -> Vec<bool> {
        (0..self.count).map(|task| self.is_done(task)).collect()
    }
    fn is_done(&self, task: usize) -> bool {
        self.done.lock().unwrap().contains(&task)
    }
    fn run(&self, task: usize, watch: &dyn Watch) -> Result<bool, String> {
        self.runs.lock().unwrap().push(task);
        if self.fails.contains(&task) {
            return Err("it is broken".to_owned());
        }
        if watch.goes_on() {
            self.done.lock().unwrap().insert(task);
        }
        Ok(watch.goes_on())
    }
}

struct Patience(AtomicI64);

impl Watch for Patience {
    fn goes_on(&self) -> bool {
        self.0.fetch_sub(1, Ordering::Relaxed) > 1
    }
}

const SETTINGS: Settings = Settings { threads: 4, attempts: 2 };

#[test]
fn failed_tasks_do_not_stop_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let tries = Tries::of(&Store::open(dir.path()).unwrap()).unwrap();
    let tasks = Made::new(100, &[3, 50]);
    let summary = run(&tasks, 0..100, &tries, SETTINGS, &NoWatch).unwrap();
    assert_eq!((summary.done, summary.failed.len(), summary.interrupted), (98, 2, false));
    let mut runs = tasks.runs.lock().unwrap().clone();
    runs.sort_unstable();
    assert!(runs.into_iter().eq(0..100));
    // The second run retries only failed tasks; the third reports them as given up.
    assert_eq!(run(&tasks, 0..100, &tries, SETTINGS, &NoWatch).unwrap().failed.len(), 2);
    assert_eq!(tasks.runs.lock().unwrap().len(), 102);
    let summary = run(&tasks, 0..100, &tries, SETTINGS, &NoWatch).unwrap();
    assert_eq!(tasks.runs.lock().unwrap().len(), 102);
    assert_eq!(summary.failed[0], Failure { name: "task 3".to_owned(), why: "it is broken".to_owned() });
}

#[test]
fn an_interruption_is_not_a_failed_attempt() {
    let dir = tempfile::tempdir().unwrap();
    let tries = Tries::of(&Store::open(dir.path()).unwrap()).unwrap();
    let tasks = Made::new(100, &[]);
    let settings = Settings { threads: 1, attempts: 1 };
    let summary = run(&tasks, 0..100, &tries, settings, &Patience(AtomicI64::new(20))).unwrap();
    assert!(summary.interrupted && summary.done < 100, "{summary:?}");
    assert!(tries.counts().is_empty());
    let summary = run(&tasks, 0..100, &tries, settings, &NoWatch).unwrap();
    assert_eq!((summary.done, summary.interrupted), (100, false));
}
