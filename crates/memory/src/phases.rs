//! Target changes at phases of a program: applies the changes of a target table.

use buddy_core::{Extent, TargetRange, Targets};
use buddy_record::TargetTable;

use crate::{BuddyMemory, Error, Handle, Retargeted};

/// Result of one change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// Name of the allocation.
    pub name: String,
    /// The retarget, or the error that left the allocation unchanged.
    pub outcome: Result<Retargeted, Error>,
}

impl BuddyMemory {
    /// Applies the changes of a table at a snapshot to the allocations that `handle` resolves.
    /// Changes that release device memory go first. A failed change affects no other.
    pub fn change(
        &self,
        table: &TargetTable,
        snapshot: usize,
        handle: impl Fn(&str) -> Option<Handle>,
    ) -> Vec<Changed> {
        let due = table.changes.iter().filter(|change| change.snapshot == snapshot);
        let known = due.filter_map(|change| Some((change, handle(&change.name)?)));
        let mut known: Vec<_> =
            known.map(|(change, handle)| (self.growth(handle, &change.ranges), change, handle)).collect();
        known.sort_by_key(|(growth, ..)| *growth);
        let carry_out = |(_, change, handle): (i64, &buddy_core::PhaseChange, Handle)| Changed {
            name: change.name.clone(),
            outcome: self.retarget(handle, &Targets::Pages(change.ranges.clone())),
        };
        known.into_iter().map(carry_out).collect()
    }

    /// Returns the device bytes that `ranges` need beyond the current ones; 0 for an invalid
    /// handle, which the retarget reports.
    fn growth(&self, handle: Handle, ranges: &[TargetRange]) -> i64 {
        let bytes_of = |range: &TargetRange| {
            range.pages.saturating_mul(self.spec().page_entries() * range.target.device_bytes() as u64) as i64
        };
        let now = self.find(handle).and_then(|allocation| {
            Ok(allocation.alone()?.iter().map(Extent::device_bytes).sum::<u64>() as i64)
        });
        now.map_or(0, |now| ranges.iter().map(bytes_of).sum::<i64>() - now)
    }
}
