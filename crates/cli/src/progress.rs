//! A progress bar on stderr, for work that takes over a second.

use std::{
    sync::{Mutex, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

use buddy_sweep::{Progress, Watch};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::{INTERRUPTED, say};

/// Progress in bytes or steps. Hidden during the first second and if stderr is not a terminal.
pub(crate) struct Bar {
    bar: ProgressBar,
    started: Instant,
}

impl Bar {
    /// Creates a bar for `bytes` bytes.
    pub(crate) fn new(bytes: u64) -> Self {
        Self::with(bytes, "{bar:32} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left")
    }

    /// Creates a bar for `steps` steps of a program.
    pub(crate) fn steps(steps: u64) -> Self {
        Self::with(steps, "{bar:32} step {pos} of {len}, {elapsed}, {eta} left")
    }

    /// Creates a bar of `parts` parts with a message.
    pub(crate) fn parts(parts: u64) -> Self {
        Self::with(parts, "{bar:32} {msg}, {elapsed}")
    }

    /// Sets the position and the message.
    pub(crate) fn set(&self, done: u64, message: String) {
        self.bar.set_message(message);
        self.add(done.saturating_sub(self.bar.position()));
    }

    fn with(length: u64, template: &str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::hidden());
        bar.set_style(ProgressStyle::with_template(template).expect("the template is right"));
        Self { bar, started: Instant::now() }
    }

    /// Advances by `done`.
    pub(crate) fn add(&self, done: u64) {
        if self.bar.is_hidden() && self.started.elapsed() > Duration::from_secs(1) {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.inc(done);
    }

    /// Hides the bar while `print` runs.
    pub(crate) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Progress on stderr with the time left: a bar on a terminal, lines elsewhere.
pub(crate) struct TimeLeft {
    bar: ProgressBar,
    begin: Instant,
    /// Minimum time between two lines.
    every: Duration,
    /// Time of the last line.
    last: Mutex<Option<Instant>>,
}

impl TimeLeft {
    /// Prints a line for every piece of work.
    pub(crate) fn new() -> Self {
        Self::with_lines_every(Duration::ZERO)
    }

    /// Prints lines at least `every` apart, for work in thousands of pieces.
    pub(crate) fn with_lines_every(every: Duration) -> Self {
        let bar = ProgressBar::new(1000);
        let style = ProgressStyle::with_template("{bar:32} {percent}%, {msg}");
        bar.set_style(style.expect("the template is right"));
        Self { bar, begin: Instant::now(), every, last: Mutex::new(None) }
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// Returns whether the next line is due, and if so notes the time.
    fn is_due(&self) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let due = last.is_none_or(|last| last.elapsed() >= self.every);
        if due {
            *last = Some(Instant::now());
        }
        due
    }

    /// Returns the estimated seconds left; `None` in the first two seconds.
    fn left(&self, progress: &Progress<'_>) -> Option<u64> {
        let passed = self.begin.elapsed().as_secs_f64();
        let known = progress.new > 0.0 && passed > 2.0;
        known.then(|| (passed * (progress.all - progress.done) / progress.new) as u64)
    }
}

impl Watch for TimeLeft {
    fn goes_on(&self) -> bool {
        !INTERRUPTED.load(Ordering::Relaxed)
    }

    fn progress(&self, progress: &Progress<'_>) {
        let left = self.left(progress).map(|left| format!(", {} left", time(left))).unwrap_or_default();
        let text = format!("{}{left}", progress.what);
        self.bar.set_position((1000.0 * progress.done / progress.all.max(1e-9)) as u64);
        self.bar.set_message(text.clone());
        if self.bar.is_hidden() && self.is_due() {
            say(format_args!("{:3.0}% {text}", 100.0 * progress.done / progress.all.max(1e-9)));
        }
    }
}

fn time(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..7200 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{:.1} h", seconds as f64 / 3600.0),
    }
}
