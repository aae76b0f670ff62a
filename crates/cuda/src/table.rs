//! Memory by the table of targets that `buddy profile` writes: buffers of a pool, or allocations
//! that follow its changes.

use buddy_codec::Codec;
use buddy_core::{ENTRIES_PER_PAGE, ENTRY_BYTES, PhaseChange, Targets};
use buddy_record::{AllocationTarget, TargetTable};
use cudarc::driver::CudaStream;

use crate::{Allocation, BuddyBuffer, BuddyPool, Error, Gpu};

/// What became of one change of targets.
#[derive(Debug)]
pub struct Changed {
    /// The allocation.
    pub name: String,
    /// Device bytes before and now; or why it could not be, and the allocation is as it was.
    pub outcome: Result<(u64, u64), Error>,
}

impl BuddyPool {
    /// A buffer for each row of a table of targets, by name, in the table's order. A codec that
    /// learns must have its parameters there: the pool has not seen the data.
    ///
    /// # Errors
    /// [`Error::Targets`] for a table that contradicts itself; otherwise as
    /// [`buffer`](Self::buffer). Buffers that were made before the row that fails are given up.
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
    /// An allocation for each row of a table, by name, with the targets that hold at the first
    /// snapshot. They own their memory, so that [`change`](Self::change) gives back what targets no
    /// longer need; otherwise as [`BuddyPool::buffers_by`].
    ///
    /// # Errors
    /// [`Error::Targets`] for a table that contradicts itself; otherwise as [`new`](Self::new).
    pub fn by_table(gpu: &Gpu, table: &TargetTable) -> Result<Vec<(String, Self)>, Error> {
        table.validate().map_err(|error| Error::Targets(error.to_string()))?;
        let of = |row: &AllocationTarget| {
            let one = Self::new(gpu, row.bytes, row.targets.clone(), codec_of(row)?)?;
            Ok((row.name.clone(), one))
        };
        table.at(0).allocations.iter().map(of).collect()
    }

    /// Carries out what a table changes at a snapshot, each as [`retarget`](Self::retarget) does.
    /// Those that give device memory back go first, so that the others find room. A change that
    /// cannot be made stops no other, and loses nothing. Names that are not among the allocations
    /// are left out.
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
            let outcome = one.of_its_pages(&targets).and_then(|targets| one.retarget(on, targets));
            Changed { name: name.clone(), outcome: outcome.map(|()| (before, one.device_bytes())) }
        };
        known.into_iter().map(carry_out).collect()
    }

    /// Ranges as targets, if they are its pages: one range alone would pass as a target for any
    /// pages.
    fn of_its_pages(&self, targets: &Targets) -> Result<Targets, Error> {
        let ranges = targets.ranges(self.buffer().entries().div_ceil(ENTRIES_PER_PAGE as u64));
        ranges.map(Targets::from_ranges).map_err(|why| Error::Targets(why.to_string()))
    }
}

/// Device bytes that targets take more than an allocation takes now; nothing for those that are not
/// its, which the change says.
fn growth(one: &Allocation, targets: &Targets) -> i64 {
    let room = BuddyPool::room_for_pages(targets, one.bytes().div_ceil(ENTRY_BYTES as u64));
    room.map_or(0, |(device, _)| device as i64 - (one.device_bytes() - one.buffer().learned_bytes()) as i64)
}

fn codec_of(row: &AllocationTarget) -> Result<Codec, Error> {
    buddy_record::codec_with_parameters(&row.codec, &row.parameters, Vec::new)
        .map_err(|error| Error::Targets(format!("allocation {:?}: {error}", row.name)))
}
