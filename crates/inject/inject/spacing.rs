//! When to look: evenly spaced snapshots of a run whose length nobody knows.

/// Snapshots that are too many: every second one is dropped then, and the distance doubles. So 10
/// to 19 remain.
const TOO_MANY: u32 = 20;

/// Snapshot schedule in ticks, which are launches or milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spacing {
    every: u64,
    next: u64,
    kept: u32,
    limited: bool,
}

impl Spacing {
    /// Begins with this distance. If it is not `limited`, all snapshots are kept and the distance
    /// stays.
    pub(crate) fn new(every: u64, limited: bool) -> Self {
        let every = every.max(1);
        Self { every, next: every, kept: 0, limited }
    }

    /// The tick from which on a snapshot is due.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Counts a snapshot at this tick. Returns whether every second of those so far, the first and
    /// third and so on, is to be dropped.
    pub(crate) fn taken(&mut self, tick: u64) -> bool {
        self.kept += 1;
        let halve = self.limited && self.kept == TOO_MANY;
        if halve {
            self.kept /= 2;
            self.every *= 2;
        }
        self.next = (tick / self.every + 1) * self.every;
        halve
    }
}
