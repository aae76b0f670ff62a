//! A progress bar on stderr, for work that takes over a second.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Counts bytes or steps. Short work never shows it, and neither does a stderr that is no terminal.
pub(crate) struct Bar {
    bar: ProgressBar,
    started: Instant,
}

impl Bar {
    /// A bar for this many bytes.
    pub(crate) fn new(bytes: u64) -> Self {
        Self::with(bytes, "{bar:32} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left")
    }

    /// A bar for this many steps of a program.
    pub(crate) fn steps(steps: u64) -> Self {
        Self::with(steps, "{bar:32} step {pos} of {len}, {elapsed}, {eta} left")
    }

    fn with(length: u64, template: &str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::hidden());
        bar.set_style(ProgressStyle::with_template(template).expect("the template is right"));
        Self { bar, started: Instant::now() }
    }

    /// That many more are done.
    pub(crate) fn add(&self, done: u64) {
        if self.bar.is_hidden() && self.started.elapsed() > Duration::from_secs(1) {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.inc(done);
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
