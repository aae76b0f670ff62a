//! Snapshot schedule: evenly spaced snapshots of a run of unknown length.

/// At this number of snapshots every second one is dropped and the interval doubles, so that 10 to
/// 19 remain.
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
    /// Begins with this interval. Unless `limited`, all snapshots are kept and the interval stays.
    pub(crate) fn new(every: u64, limited: bool) -> Self {
        let every = every.max(1);
        Self { every, next: every, kept: 0, limited }
    }

    /// Returns the tick at which the next snapshot is due.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Records a snapshot at this tick. Returns true if every second one so far (first, third, ...)
    /// is to be dropped.
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
