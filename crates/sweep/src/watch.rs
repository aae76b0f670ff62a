//! Progress and interruption of long work.

/// Receives progress and decides whether work continues.
pub trait Watch: Sync {
    /// Returns whether to continue; after false, the work ends with what is done.
    fn goes_on(&self) -> bool {
        true
    }

    /// Called when a piece of work starts or ends.
    fn progress(&self, _progress: &Progress<'_>) {}
}

/// Progress in expected seconds on one core.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress<'a> {
    /// The piece that started or ended.
    pub what: &'a str,
    /// Finished work.
    pub done: f64,
    /// Finished work, without what was already stored.
    pub new: f64,
    /// All work known so far.
    pub all: f64,
}

/// Runs work to its end and ignores progress.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoWatch;

impl Watch for NoWatch {}
