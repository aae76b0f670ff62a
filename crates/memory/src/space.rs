//! Free-space management.

use std::collections::BTreeMap;

use buddy_core::{Extent, TargetRange};
use serde::{Deserialize, Serialize};

use crate::{Error, Spec};

/// Free space of one address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Free {
    /// Free units (bytes or pages).
    pub total: u64,
    /// Longest free run.
    pub largest: u64,
    /// Number of free runs; adjacent runs are merged.
    pub runs: u64,
}

/// Free space of a memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeSpace {
    /// Device bytes.
    pub device: Free,
    /// Carve-out bytes.
    pub carve_out: Free,
    /// Pages of the data address space, with their metadata.
    pub pages: Free,
}

/// Free runs by start, allocated first-fit.
#[derive(Debug, Clone)]
struct FreeList(BTreeMap<u64, u64>);

impl FreeList {
    fn new(len: u64) -> Self {
        Self(if len == 0 { BTreeMap::new() } else { BTreeMap::from([(0, len)]) })
    }

    /// Allocates `len` contiguous units; zero units are at 0.
    fn take(&mut self, len: u64) -> Option<u64> {
        if len == 0 {
            return Some(0);
        }
        let (&start, &found) = self.0.iter().find(|&(_, &run)| run >= len)?;
        self.0.remove(&start);
        if found > len {
            self.0.insert(start + len, found - len);
        }
        Some(start)
    }

    /// Frees a run and merges it with its neighbours.
    fn give(&mut self, start: u64, len: u64) {
        if len == 0 {
            return;
        }
        let (mut start, mut end) = (start, start + len);
        if let Some((&after, &run)) = self.0.range(start..).next() {
            debug_assert!(after >= end, "double free");
            if after == end {
                self.0.remove(&after);
                end += run;
            }
        }
        if let Some((&before, &run)) = self.0.range(..start).next_back() {
            debug_assert!(before + run <= start, "double free");
            if before + run == start {
                start = before;
            }
        }
        self.0.insert(start, end - start);
    }

    fn free(&self) -> Free {
        Free {
            total: self.0.values().sum(),
            largest: self.0.values().copied().max().unwrap_or(0),
            runs: self.0.len() as u64,
        }
    }
}

/// The address spaces of a memory.
#[derive(Debug)]
pub(crate) struct Space {
    device: FreeList,
    carve_out: FreeList,
    pages: FreeList,
    page_entries: u64,
}

impl Space {
    pub(crate) fn new(spec: &Spec) -> Self {
        Self {
            device: FreeList::new(spec.device_bytes),
            carve_out: FreeList::new(spec.carve_out_bytes()),
            pages: FreeList::new(spec.capacity_bytes() / spec.page_bytes),
            page_entries: spec.page_entries(),
        }
    }

    /// Allocates pages and space for their ranges; all or nothing.
    pub(crate) fn take(&mut self, ranges: &[TargetRange]) -> Result<(u64, Vec<Extent>), Error> {
        let needed = ranges.iter().map(|range| range.pages).sum();
        let first_page = self.pages.take(needed).ok_or_else(|| {
            let Free { largest, total, .. } = self.pages.free();
            Error::PagesExhausted { needed, largest, free: total }
        })?;
        match self.take_room(ranges, first_page) {
            Ok(extents) => Ok((first_page, extents)),
            Err(error) => {
                self.pages.give(first_page, needed);
                Err(error)
            }
        }
    }

    /// Allocates space for the ranges of existing pages; all or nothing.
    pub(crate) fn take_room(
        &mut self,
        ranges: &[TargetRange],
        first_page: u64,
    ) -> Result<Vec<Extent>, Error> {
        let mut extents = Vec::with_capacity(ranges.len());
        let mut page = first_page;
        for range in ranges {
            match self.take_extent(range, page) {
                Ok(extent) => extents.push(extent),
                Err(error) => {
                    self.give_room(&extents);
                    return Err(error);
                }
            }
            page += range.pages;
        }
        Ok(extents)
    }

    fn take_extent(&mut self, range: &TargetRange, first_page: u64) -> Result<Extent, Error> {
        let TargetRange { pages, target } = *range;
        let entries = pages * self.page_entries;
        let nibble_base = first_page * self.page_entries;
        let mut extent = Extent { target, entries, device_base: 0, buddy_base: 0, nibble_base };
        let (device, buddy) = (extent.device_bytes(), extent.buddy_bytes());
        extent.device_base = self.device.take(device).ok_or_else(|| {
            let Free { largest, total, .. } = self.device.free();
            Error::DeviceExhausted { needed: device, largest, free: total }
        })?;
        let Some(buddy_base) = self.carve_out.take(buddy) else {
            self.device.give(extent.device_base, device);
            let Free { largest, total, .. } = self.carve_out.free();
            return Err(Error::CarveOutExhausted { needed: buddy, largest, free: total });
        };
        extent.buddy_base = buddy_base;
        Ok(extent)
    }

    /// Frees space, but not the pages.
    pub(crate) fn give_room(&mut self, extents: &[Extent]) {
        for extent in extents {
            self.device.give(extent.device_base, extent.device_bytes());
            self.carve_out.give(extent.buddy_base, extent.buddy_bytes());
        }
    }

    /// Frees pages and their space.
    pub(crate) fn give(&mut self, first_page: u64, extents: &[Extent]) {
        self.give_room(extents);
        let entries: u64 = extents.iter().map(|extent| extent.entries).sum();
        self.pages.give(first_page, entries / self.page_entries);
    }

    pub(crate) fn free(&self) -> FreeSpace {
        FreeSpace { device: self.device.free(), carve_out: self.carve_out.free(), pages: self.pages.free() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn adjacent_runs_merge_in_any_order() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut list = FreeList::new(30);
            let starts = [10, 10, 10].map(|len| list.take(len).unwrap());
            assert_eq!((starts, list.take(1)), ([0, 10, 20], None));
            for i in order {
                list.give(starts[i], 10);
            }
            assert_eq!(list.free(), Free { total: 30, largest: 30, runs: 1 });
        }
    }

    proptest! {
        #[test]
            fn allocations_never_overlap_and_nothing_leaks(
            steps in proptest::collection::vec((1u64..40, any::<prop::sample::Index>(), any::<bool>()), 1..200),
        ) {
            let mut list = FreeList::new(500);
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (len, index, give) in steps {
                if give && !taken.is_empty() {
                    let (start, len) = taken.swap_remove(index.index(taken.len()));
                    list.give(start, len);
                } else if let Some(start) = list.take(len) {
                    prop_assert!(taken.iter().all(|&(s, l)| start + len <= s || s + l <= start));
                    taken.push((start, len));
                }
                let used: u64 = taken.iter().map(|&(_, len)| len).sum();
                prop_assert_eq!(list.free().total + used, 500);
            }
        }
    }
}
