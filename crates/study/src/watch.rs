//! Who watches a study.

/// Told how far a study is, and asked whether it goes on.
pub trait Watch: Sync {
    /// Whether to go on; once it says no, the study ends with what is done.
    fn goes_on(&self) -> bool {
        true
    }

    /// A piece of work begins or has ended.
    fn progress(&self, _progress: &Progress<'_>) {}
}

/// How far a study is. Work is measured in its expected seconds on one core.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress<'a> {
    /// What was begun or ended.
    pub what: &'a str,
    /// Work that is done.
    pub done: f64,
    /// That part of it which was not found done.
    pub new: f64,
    /// All work, as far as it is known.
    pub all: f64,
}

/// Lets a study run to its end and hears nothing of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nobody;

impl Watch for Nobody {}
