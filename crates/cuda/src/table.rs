//! Buffers by the file of targets that `buddy profile` writes.

use buddy_core::{AllocationTarget, ENTRY_BYTES, Target, TargetTable};
use buddy_profile::{read_targets, row_codec};

use crate::{BuddyBuffer, BuddyPool, Error, Targets};

impl BuddyPool {
    /// A buffer for each row of a file of targets, by name, in the order of the file. A codec that learns must have
    /// its parameters there: the pool has not seen the data.
    ///
    /// # Errors
    /// [`Error::Targets`] for a text that is no such file; otherwise as [`buffer`](Self::buffer). Buffers that were
    /// made before the row that fails are given up.
    pub fn buffers_by(&mut self, file: &str) -> Result<Vec<(String, BuddyBuffer)>, Error> {
        let table: TargetTable = read_targets(file).map_err(|error| Error::Targets(error.to_string()))?;
        let used = self.used();
        let buffers: Result<Vec<_>, Error> =
            table.allocations.iter().map(|row| Ok((row.name.clone(), self.buffer_of(row)?))).collect();
        if buffers.is_err() {
            self.restore(used);
        }
        buffers
    }

    fn buffer_of(&mut self, row: &AllocationTarget) -> Result<BuddyBuffer, Error> {
        let codec = row_codec(row, Vec::new).map_err(|error| Error::Targets(error.to_string()))?;
        match row.target {
            Some(target) => {
                self.buffer(codec, Targets::Uniform(target, row.bytes.div_ceil(ENTRY_BYTES as u64)))
            }
            None => self.buffer(codec, Targets::Pages(&pages(row))),
        }
    }
}

/// The target of every page of a row with ranges.
fn pages(row: &AllocationTarget) -> Vec<Target> {
    row.ranges.iter().flat_map(|range| std::iter::repeat_n(range.target, range.pages as usize)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_become_pages() {
        let file = "version = 1\nprogram = \"p\"\n[[allocation]]\nname = \"a\"\nbytes = 24576\ncodec = \"bpc\"\n\
                    ranges = [{ pages = 1, target = \"4x\" }, { pages = 2, target = \"1x\" }]\n";
        let table = read_targets(file).unwrap();
        assert_eq!(pages(&table.allocations[0]), [Target::X4, Target::X1, Target::X1]);
    }
}
