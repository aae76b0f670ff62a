//! A progress bar on stderr, for work that takes over a second.

use std::{
    sync::{Mutex, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

use buddy_sweep::{Progress, Watch};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::{INTERRUPTED, say};

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

    /// A bar for so many parts of a way, with words beside it.
    pub(crate) fn parts(parts: u64) -> Self {
        Self::with(parts, "{bar:32} {msg}, {elapsed}")
    }

    /// How far it is, and the words.
    pub(crate) fn set(&self, done: u64, words: String) {
        self.bar.set_message(words);
        self.add(done.saturating_sub(self.bar.position()));
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

    /// Prints something while the bar is away.
    pub(crate) fn beside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Progress on stderr with the time left: a bar on a terminal, lines elsewhere.
pub(crate) struct TimeLeft {
    bar: ProgressBar,
    begin: Instant,
    /// At least so long between two lines, and when the last one was written.
    every: Duration,
    last: Mutex<Option<Instant>>,
}

impl TimeLeft {
    /// With a line for every piece of work.
    pub(crate) fn new() -> Self {
        Self::with_lines_every(Duration::ZERO)
    }

    /// With lines at least so long apart, for work in thousands of pieces.
    pub(crate) fn with_lines_every(every: Duration) -> Self {
        let bar = ProgressBar::new(1000);
        let style = ProgressStyle::with_template("{bar:32} {percent}%, {msg}");
        bar.set_style(style.expect("the template is right"));
        Self { bar, begin: Instant::now(), every, last: Mutex::new(None) }
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// Whether it is time for another line.
    fn is_due(&self) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let due = last.is_none_or(|last| last.elapsed() >= self.every);
        if due {
            *last = Some(Instant::now());
        }
        due
    }

    /// The time left if it goes on as before; nothing before there is anything to go by.
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
