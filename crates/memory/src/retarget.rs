//! Changing targets: the only operation that moves data.
//!
//! The paper allows it at rare points, such as checkpoints of a training run. Stored bytes are
//! copied unchanged, since size classes do not depend on the target.

use buddy_core::{ENTRY_BYTES, Extent, Target, TargetRange, Targets};
use serde::{Deserialize, Serialize};

use crate::{BuddyMemory, Error, Handle, line::LINE_ENTRIES, request::ranges, slots::Slots};

/// Result of a retarget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retargeted {
    /// Stored bytes copied.
    pub bytes_moved: u64,
    /// Device bytes of the allocation before.
    pub device_bytes_before: u64,
    /// Device bytes of the allocation after.
    pub device_bytes_after: u64,
}

impl BuddyMemory {
    /// Changes the targets of an allocation. Ranges with the same pages and target stay in place;
    /// the others are copied to new space, so both must fit meanwhile. Concurrent calls on the
    /// allocation wait.
    ///
    /// # Errors
    /// As for [`allocate`](Self::allocate), or invalid metadata; the allocation is unchanged then.
    pub fn retarget(&self, handle: Handle, targets: &Targets) -> Result<Retargeted, Error> {
        let allocation = self.find(handle)?;
        let mut extents = allocation.alone()?;
        let pages = allocation.bytes.div_ceil(self.spec.page_bytes);
        let ranges = ranges(targets, pages, &self.spec)?;
        let old = extents.iter().map(|extent| extent.target);
        if !old.chain(ranges.iter().map(|range| range.target)).all(Target::compresses) {
            return Err(Error::NotCompressed(handle));
        }
        let (new, fresh) = self.plan(&extents, &ranges, allocation.first_page)?;
        let moved = match self.copy(&fresh, self.address(&allocation)) {
            Ok(moved) => moved,
            Err(error) => {
                self.release(&fresh);
                return Err(error);
            }
        };
        fresh.iter().for_each(|extent| self.page_table.map(extent));
        let device_bytes = |extents: &[Extent]| extents.iter().map(Extent::device_bytes).sum();
        let device_bytes_before = device_bytes(&extents);
        let left: Vec<Extent> = extents.iter().filter(|old| !new.contains(old)).copied().collect();
        self.release(&left);
        *extents = new;
        Ok(Retargeted { bytes_moved: moved, device_bytes_before, device_bytes_after: device_bytes(&extents) })
    }

    /// Returns the extents for `ranges`, and the newly allocated ones among them.
    fn plan(
        &self,
        old: &[Extent],
        ranges: &[TargetRange],
        first_page: u64,
    ) -> Result<(Vec<Extent>, Vec<Extent>), Error> {
        let (mut new, mut fresh) = (Vec::new(), Vec::new());
        let mut page = first_page;
        for range in ranges {
            let nibble_base = page * self.spec.page_entries();
            let entries = range.pages * self.spec.page_entries();
            let same = |old: &&Extent| {
                (old.nibble_base, old.entries, old.target) == (nibble_base, entries, range.target)
            };
            if let Some(kept) = old.iter().find(same) {
                new.push(*kept);
            } else {
                let room = self.space().take_room(std::slice::from_ref(range), page);
                let room = room.inspect_err(|_| self.space().give_room(&fresh))?;
                new.extend_from_slice(&room);
                fresh.extend_from_slice(&room);
            }
            page += range.pages;
        }
        Ok((new, fresh))
    }

    /// Copies the stored bytes of every entry of `fresh` from its current location in the page
    /// table.
    fn copy(&self, fresh: &[Extent], base: u64) -> Result<u64, Error> {
        let mut moved = 0;
        for (new, line) in fresh.iter().flat_map(lines_of) {
            let old = Slots::new(self, self.page_table.line_extent(line)?, base);
            let new = Slots::new(self, new, base);
            let nibbles = self.lines.read(line);
            for entry in 0..LINE_ENTRIES as usize {
                moved += new.copy_from(&old, &nibbles, entry)?;
            }
        }
        Ok(moved)
    }

    /// Zeroes and frees space.
    fn release(&self, extents: &[Extent]) {
        extents.iter().for_each(|extent| self.scrub(extent));
        self.space().give_room(extents);
    }
}

/// Splits an extent into lines, each with the address of its data.
fn lines_of(extent: &Extent) -> impl Iterator<Item = (Extent, u64)> {
    (0..extent.entries).step_by(LINE_ENTRIES as usize).map(|first| {
        let place = extent.locate(first).expect("counted by its entries");
        let nibble_base = extent.nibble_base + first;
        let (device_base, buddy_base) = (place.device.start, place.buddy.start);
        let line = Extent { entries: LINE_ENTRIES, device_base, buddy_base, nibble_base, ..*extent };
        (line, nibble_base * ENTRY_BYTES as u64)
    })
}
