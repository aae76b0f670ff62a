//! Targets that follow a program: the changes of a table of targets, carried out when they fall due.

use buddy_core::{Extent, TargetRange, TargetTable, Targets};

use crate::{BuddyMemory, Error, Handle, Retargeted};

/// What became of one change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// The allocation.
    pub name: String,
    /// What was moved; or why nothing was, and the allocation is as it was before.
    pub outcome: Result<Retargeted, Error>,
}

impl BuddyMemory {
    /// Carries out what a table changes at a snapshot, for the allocations whose handles the caller knows. Those that give device
    /// memory back go first, so that the others find room. A change that cannot be made stops no other, and loses nothing.
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

    /// Device bytes that ranges take more than an allocation takes now; nothing for a handle that is none, which the retarget says.
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
