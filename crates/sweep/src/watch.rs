//! Who watches work that takes long.

/// Told how far the work is, and asked whether it goes on.
pub trait Watch: Sync {
    /// Whether to go on; once it says no, the work ends with what is done.
    fn goes_on(&self) -> bool {
        true
    }

    /// A piece of work begins or has ended.
    fn progress(&self, _progress: &Progress<'_>) {}
}

/// How far the work is. It is measured in its expected seconds on one core.
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

/// Lets the work run to its end and hears nothing of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nobody;

impl Watch for Nobody {}
