//! A progress bar on stderr, for work that takes over a second.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Counts bytes. Short work never shows it, and neither does a stderr that is no terminal.
pub(crate) struct Bar {
    bar: ProgressBar,
    started: Instant,
}

impl Bar {
    /// A bar for this many bytes.
    pub(crate) fn new(bytes: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::hidden());
        let style =
            ProgressStyle::with_template("{bar:32} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left");
        bar.set_style(style.expect("the template is right"));
        Self { bar, started: Instant::now() }
    }

    /// That many bytes more are done.
    pub(crate) fn add(&self, bytes: u64) {
        if self.bar.is_hidden() && self.started.elapsed() > Duration::from_secs(1) {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.inc(bytes);
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
