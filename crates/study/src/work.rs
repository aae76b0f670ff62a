//! Work that leaves records: done once, counted, and reported to a watch.

use std::sync::Mutex;

use buddy_record::RecordKind;

use crate::{Error, Key, Progress, Store, Watch};

/// Progress of a study.
pub(crate) struct Work<'a> {
    watch: &'a dyn Watch,
    counts: Mutex<Counts>,
}

#[derive(Debug, Clone, Copy)]
struct Counts {
    done: f64,
    new: f64,
    all: f64,
}

impl<'a> Work<'a> {
    /// Creates work of `all` estimated core seconds.
    pub(crate) fn new(watch: &'a dyn Watch, all: f64) -> Self {
        Self { watch, counts: Mutex::new(Counts { done: 0.0, new: 0.0, all }) }
    }

    /// Returns the watch, which may stop the work.
    pub(crate) fn watch(&self) -> &'a dyn Watch {
        self.watch
    }

    /// Loads a record, or makes and saves it.
    pub(crate) fn record<T: RecordKind>(
        &self,
        what: &str,
        seconds: f64,
        store: &Store,
        key: &Key,
        make: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        if !self.watch.goes_on() {
            return Err(Error::Interrupted);
        }
        if let Some(record) = store.load(key) {
            self.tell(what, seconds, 0.0);
            return Ok(record.data);
        }
        self.tell(what, 0.0, 0.0);
        let made = store.save(key, make()?)?.data;
        self.tell(what, seconds, seconds);
        Ok(made)
    }

    fn tell(&self, what: &str, done: f64, new: f64) {
        let counts = {
            let mut counts = self.counts.lock().expect("no thread panics while holding the lock");
            counts.done += done;
            counts.new += new;
            *counts
        };
        let Counts { done, new, all } = counts;
        self.watch.progress(&Progress { what, done, new, all });
    }
}
