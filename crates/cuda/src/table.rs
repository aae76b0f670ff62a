//! Memory by a table of targets from `buddy profile`: buffers of a pool, or allocations that follow
//! its changes.

use buddy_codec::Codec;
use buddy_core::{ENTRIES_PER_PAGE, ENTRY_BYTES, PhaseChange, Targets};
use buddy_record::{AllocationTarget, TargetTable};
use cudarc::driver::CudaStream;

use crate::{Allocation, BuddyBuffer, BuddyPool, Error, Gpu};

/// Result of a change of targets.
#[derive(Debug)]
pub struct Changed {
    /// The allocation.
    pub name: String,
    /// Device bytes before and after, or an error, which leaves the allocation unchanged.
    pub outcome: Result<(u64, u64), Error>,
}

impl BuddyPool {
    /// Creates a buffer for each row of a table of targets, by name, in the table's order. A
    /// trainable codec must have its parameters in the table, since the pool has not seen the data.
    ///
    /// # Errors
    /// [`Error::Targets`] for an inconsistent table; otherwise as for [`buffer`](Self::buffer).
    /// Buffers of earlier rows are dropped.
    pub fn buffers_by(&mut self, table: &TargetTable) -> Result<Vec<(String, BuddyBuffer)>, Error> {
        table.validate().map_err(|error| Error::Targets(error.to_string()))?;
        let used = self.used();
        let buffers: Result<Vec<_>, Error> =
            table.allocations.iter().map(|row| Ok((row.name.clone(), self.buffer_of(row)?))).collect();
        if buffers.is_err() {
            self.restore(used);
        }
        buffers
    }

    fn buffer_of(&mut self, row: &AllocationTarget) -> Result<BuddyBuffer, Error> {
        self.buffer(codec_of(row)?, row.targets.clone(), row.bytes.div_ceil(ENTRY_BYTES as u64))
    }
}

impl Allocation {
    /// Creates an allocation for each row of a table, by name, with the targets of the first
    /// snapshot. Allocations own their memory, so that [`change`](Self::change) frees what targets
    /// no longer need; otherwise as [`BuddyPool::buffers_by`].
    ///
    /// # Errors
    /// [`Error::Targets`] for an inconsistent table; otherwise as for [`new`](Self::new).
    pub fn by_table(gpu: &Gpu, table: &TargetTable) -> Result<Vec<(String, Self)>, Error> {
        table.validate().map_err(|error| Error::Targets(error.to_string()))?;
        let of = |row: &AllocationTarget| Ok((row.name.clone(), Self::by_row(gpu, row, row.bytes)?));
        table.at(0).allocations.iter().map(of).collect()
    }

    /// Creates an allocation of `bytes` bytes with the codec and targets of a row.
    ///
    /// # Errors
    /// As for [`by_table`](Self::by_table).
    pub fn by_row(gpu: &Gpu, row: &AllocationTarget, bytes: u64) -> Result<Self, Error> {
        Self::new(gpu, bytes, row.targets.clone(), codec_of(row)?)
    }

    /// Returns the device bytes of the parameters of a row's codec.
    ///
    /// # Errors
    /// [`Error::Targets`] for a codec that is unknown or whose parameters are invalid.
    pub fn parameter_bytes_of(row: &AllocationTarget) -> Result<u64, Error> {
        Ok(crate::learned::bytes_of(&codec_of(row)?))
    }

    /// Applies a table's changes at a snapshot, each like [`retarget`](Self::retarget). Changes
    /// that free device memory go first, to make room for the others. A failed change stops no
    /// other and loses nothing. Names without an allocation are skipped.
    pub fn change(
        all: &mut [(String, Self)],
        on: &CudaStream,
        table: &TargetTable,
        snapshot: usize,
    ) -> Vec<Changed> {
        let due = table.changes.iter().filter(|change| change.snapshot == snapshot);
        let found = |change: &PhaseChange| all.iter().position(|(name, _)| *name == change.name);
        let mut known: Vec<(usize, Targets)> =
            due.filter_map(|change| Some((found(change)?, Targets::Pages(change.ranges.clone())))).collect();
        known.sort_by_key(|(at, targets)| growth(&all[*at].1, targets));
        let carry_out = |(at, targets): (usize, Targets)| {
            let (name, one) = &mut all[at];
            let before = one.device_bytes();
            let outcome = one.covering(&targets).and_then(|targets| one.retarget(on, targets));
            Changed { name: name.clone(), outcome: outcome.map(|()| (before, one.device_bytes())) }
        };
        known.into_iter().map(carry_out).collect()
    }

    /// Converts ranges to targets, if they cover the pages: a single range would otherwise pass as
    /// a target for any number of pages.
    ///
    /// # Errors
    /// [`Error::Targets`] for ranges of another number of pages.
    pub fn covering(&self, targets: &Targets) -> Result<Targets, Error> {
        let ranges = targets.ranges(self.buffer().entries().div_ceil(ENTRIES_PER_PAGE as u64));
        ranges.map(Targets::from_ranges).map_err(|why| Error::Targets(why.to_string()))
    }
}

/// Returns the device bytes that targets add to an allocation; 0 for invalid targets, which the
/// change reports.
fn growth(one: &Allocation, targets: &Targets) -> i64 {
    let room = BuddyPool::room_for_pages(targets, one.bytes().div_ceil(ENTRY_BYTES as u64));
    room.map_or(0, |(device, _)| device as i64 - (one.device_bytes() - one.buffer().learned_bytes()) as i64)
}

fn codec_of(row: &AllocationTarget) -> Result<Codec, Error> {
    buddy_record::codec_with_parameters(&row.codec, &row.parameters, Vec::new)
        .map_err(|error| Error::Targets(format!("allocation {:?}: {error}", row.name)))
}
