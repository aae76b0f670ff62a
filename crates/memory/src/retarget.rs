//! Changing targets: the only thing that moves data, and only when it is asked for.
//!
//! The paper allows it at rare moments, such as the checkpoints of a training run. The stored bytes are copied
//! as they are: their size classes do not depend on the target, so nothing is compressed anew.

use buddy_core::{ENTRY_BYTES, Extent};
use serde::{Deserialize, Serialize};

use crate::{BuddyMemory, Error, Handle, PageRange, Targets, line::LINE_ENTRIES};

/// What a retarget did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retargeted {
    /// Stored bytes that were copied to another place.
    pub bytes_moved: u64,
    /// Device bytes of the allocation before.
    pub device_bytes_before: u64,
    /// Device bytes of the allocation now.
    pub device_bytes_after: u64,
}

impl BuddyMemory {
    /// Gives an allocation other targets. Ranges that keep their pages and their target stay where they are; the
    /// others are copied to new room, so there must be room for both until it is done. Calls on the allocation
    /// wait meanwhile.
    ///
    /// # Errors
    /// As for [`allocate`](Self::allocate), or metadata that is none; the allocation is then as it was.
    pub fn retarget(&self, handle: Handle, targets: &Targets) -> Result<Retargeted, Error> {
        let allocation = self.find(handle)?;
        let mut extents = allocation.alone()?;
        if allocation.codec.is_none() {
            return Err(Error::NotCompressed(handle));
        }
        let pages = allocation.bytes.div_ceil(self.spec.page_bytes);
        let ranges = targets.ranges(pages, &self.spec)?;
        let (new, fresh) = self.plan(&extents, &ranges, allocation.first_page)?;
        let moved = match self.copy(&extents, &fresh, self.address(&allocation)) {
            Ok(moved) => moved,
            Err(error) => {
                self.release(&fresh);
                return Err(error);
            }
        };
        fresh.iter().for_each(|extent| self.page_table.map(extent, true));
        let device_bytes = |extents: &[Extent]| extents.iter().map(Extent::device_bytes).sum();
        let device_bytes_before = device_bytes(&extents);
        let left: Vec<Extent> = extents.iter().filter(|old| !new.contains(old)).copied().collect();
        self.release(&left);
        *extents = new;
        Ok(Retargeted { bytes_moved: moved, device_bytes_before, device_bytes_after: device_bytes(&extents) })
    }

    /// The extents that `ranges` ask for, and those among them that are new.
    fn plan(
        &self,
        old: &[Extent],
        ranges: &[PageRange],
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

    /// Copies the stored bytes of every entry of `fresh` from its place in `old`.
    fn copy(&self, old: &[Extent], fresh: &[Extent], base: u64) -> Result<u64, Error> {
        let mut moved = 0;
        let mut stored = [0; ENTRY_BYTES];
        for extent in fresh {
            for entry in 0..extent.entries {
                let nibble = extent.nibble_base + entry;
                let (from, from_entry) = find(old, nibble);
                let there = from.place(from_entry).expect("found by its entries");
                let here = extent.place(entry).expect("counted by its entries");
                let address = nibble * ENTRY_BYTES as u64;
                let class = (self.lines.read(address).get(here.nibble))
                    .map_err(|source| Error::Metadata { offset: address - base, source })?
                    .class();
                self.gather(from.target, &there, class, &mut stored);
                self.scatter(extent.target, &here, class, &stored);
                moved += class.bytes() as u64;
            }
        }
        Ok(moved)
    }

    /// Overwrites room with zeros and gives it back.
    fn release(&self, extents: &[Extent]) {
        extents.iter().for_each(|extent| self.scrub(extent));
        self.space().give_room(extents);
    }
}

/// The extent that holds the entry with this nibble, and which of its entries it is.
fn find(extents: &[Extent], nibble: u64) -> (&Extent, u64) {
    let after = extents.partition_point(|extent| extent.nibble_base <= nibble);
    let extent = &extents[after - 1];
    (extent, nibble - extent.nibble_base)
}

// A page is a whole number of lines, and an extent of pages.
const _: () = assert!(LINE_ENTRIES * ENTRY_BYTES as u64 == buddy_core::PAGE_BYTES as u64);
