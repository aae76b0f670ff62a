//! Buffers by the table of targets that `buddy profile` writes.

use buddy_codec::Codec;
use buddy_core::{AllocationTarget, ENTRY_BYTES, TargetTable};

use crate::{BuddyBuffer, BuddyPool, Error};

impl BuddyPool {
    /// A buffer for each row of a table of targets, by name, in the table's order. A codec that learns must have its
    /// parameters there: the pool has not seen the data.
    ///
    /// # Errors
    /// [`Error::Targets`] for a table that contradicts itself; otherwise as [`buffer`](Self::buffer). Buffers that
    /// were made before the row that fails are given up.
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
        let codec = Codec::with_parameters(&row.codec, &row.parameters, Vec::new)
            .map_err(|error| Error::Targets(format!("allocation {:?}: {error}", row.name)))?;
        self.buffer(codec, row.targets.clone(), row.bytes.div_ceil(ENTRY_BYTES as u64))
    }
}
