//! The memory itself: allocation, free and entry locations.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError},
};

use buddy_core::{ENTRY_BYTES, Extent, Location, Target};

use crate::{
    Error, FreeSpace, Handle, MetadataCache, PageEntry, Request, Spec, Traffic,
    allocation::Allocation,
    line::{LINE_DATA_BYTES, LINE_ENTRIES, Lines},
    page::PageTable,
    region::Region,
    request::ranges,
    space::Space,
    sync::{Mutex, MutexGuard, RwLock},
};

/// A memory that stores data compressed on a device, with the overflow in a carve-out of another
/// memory.
///
/// All methods take `&self`, and threads may share it. Calls on different entries run concurrently,
/// except that a write excludes other accesses to its metadata line (64 consecutive entries).
/// Entries are read and written atomically; longer ranges are not. [`free`](Self::free) and
/// [`retarget`](Self::retarget) wait for running calls on their allocation.
pub struct BuddyMemory {
    pub(crate) spec: Spec,
    pub(crate) device: Region,
    pub(crate) carve_out: Region,
    pub(crate) lines: Lines,
    pub(crate) page_table: PageTable,
    pub(crate) cache: MetadataCache,
    space: Mutex<Space>,
    table: RwLock<Table>,
    /// Traffic of freed allocations.
    pub(crate) retired: Mutex<Traffic>,
}

/// Live allocations by handle, and the next handle.
#[derive(Default)]
struct Table {
    live: BTreeMap<Handle, Arc<Allocation>>,
    next: u64,
}

impl BuddyMemory {
    /// Creates an empty memory.
    ///
    /// # Errors
    /// [`Error::Spec`] if the spec is invalid; [`Error::Host`] if the host lacks memory.
    pub fn new(spec: Spec) -> Result<Self, Error> {
        spec.validate()?;
        Ok(Self {
            device: Region::new(spec.device_bytes)?,
            carve_out: Region::new(spec.carve_out_bytes())?,
            lines: Lines::new(spec.capacity_bytes()),
            page_table: PageTable::new(spec.capacity_bytes() / spec.page_bytes, spec.page_bytes),
            cache: MetadataCache::new(spec.metadata_cache)?,
            space: Mutex::new(Space::new(&spec)),
            table: RwLock::default(),
            retired: Mutex::default(),
            spec,
        })
    }

    /// Returns the spec.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Allocates zeroed memory. If the memory has compression disabled, the request's codec and
    /// targets are ignored.
    ///
    /// # Errors
    /// An invalid length or page ranges, or [`Error::DeviceExhausted`],
    /// [`Error::CarveOutExhausted`] or [`Error::PagesExhausted`].
    pub fn allocate(&self, request: &Request) -> Result<Handle, Error> {
        let capacity = self.spec.capacity_bytes();
        let bytes = request.bytes;
        match bytes {
            0 => return Err(Error::ZeroLength),
            _ if bytes > capacity => return Err(Error::TooLong { bytes, capacity }),
            _ => {}
        }
        let pages = bytes.div_ceil(self.spec.page_bytes);
        let codec = request.codec.clone().filter(|_| self.spec.compression);
        let plain = Target::Uncompressed.into();
        let targets = if codec.is_some() { &request.targets } else { &plain };
        let ranges = ranges(targets, pages, &self.spec)?;
        let (first_page, extents) = self.space().take(&ranges)?;
        for extent in &extents {
            self.page_table.map(extent);
        }
        let mut table = self.table.write().expect("the table's lock is never poisoned");
        let handle = Handle(table.next);
        table.next += 1;
        let allocation = Allocation::new(handle, bytes, codec, first_page, extents);
        table.live.insert(handle, Arc::new(allocation));
        Ok(handle)
    }

    /// Frees an allocation and zeroes its space. Waits for running calls on it; later ones fail.
    ///
    /// # Errors
    /// [`Error::Freed`] on a double free; [`Error::Unknown`] for a handle that does not belong to
    /// this memory.
    pub fn free(&self, handle: Handle) -> Result<(), Error> {
        let allocation = self.find(handle)?;
        let mut extents = allocation.alone()?;
        self.table.write().expect("the table's lock is never poisoned").live.remove(&handle);
        for extent in extents.iter() {
            self.scrub(extent);
            self.clear_lines(extent);
        }
        self.space().give(allocation.first_page, &extents);
        extents.clear();
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        *retired = retired.plus(&allocation.traffic.get());
        Ok(())
    }

    /// Returns the location of entry `entry` from the page table. Buddy addresses are relative to
    /// the GBBR. Only a retarget changes it.
    ///
    /// # Errors
    /// A handle that is not live, or an entry past the end.
    pub fn locate(&self, handle: Handle, entry: u64) -> Result<Location, Error> {
        let allocation = self.find(handle)?;
        let _held = allocation.shared()?;
        let offset = entry.saturating_mul(ENTRY_BYTES as u64);
        allocation.check(offset, 1)?;
        let address = self.address(&allocation) + offset;
        let line = self.page_table.line_extent(address)?;
        Ok(line.locate(entry % LINE_ENTRIES).expect("a line has 64 entries"))
    }

    /// Returns the page-table entry of page `page` of an allocation.
    ///
    /// # Errors
    /// A handle that is not live, or a page past the end.
    pub fn page_entry(&self, handle: Handle, page: u64) -> Result<PageEntry, Error> {
        let allocation = self.find(handle)?;
        let _held = allocation.shared()?;
        allocation.check(page.saturating_mul(self.spec.page_bytes), 1)?;
        self.page_table.get(allocation.first_page + page)
    }

    /// Returns the free device bytes, carve-out bytes and pages, and their fragmentation.
    pub fn free_space(&self) -> FreeSpace {
        self.space().free()
    }

    /// Returns the live allocation of a handle.
    pub(crate) fn find(&self, handle: Handle) -> Result<Arc<Allocation>, Error> {
        let table = self.table.read().expect("the table's lock is never poisoned");
        match table.live.get(&handle) {
            Some(allocation) => Ok(Arc::clone(allocation)),
            None if handle.0 < table.next => Err(Error::Freed(handle)),
            None => Err(Error::Unknown(handle)),
        }
    }

    /// Returns every live allocation, by handle.
    pub(crate) fn live(&self) -> Vec<Arc<Allocation>> {
        let table = self.table.read().expect("the table's lock is never poisoned");
        table.live.values().cloned().collect()
    }

    pub(crate) fn space(&self) -> MutexGuard<'_, Space> {
        self.space.lock().expect("the space lock is never poisoned")
    }

    /// Returns the start of an allocation in the data address space.
    pub(crate) fn address(&self, allocation: &Allocation) -> u64 {
        allocation.first_page * self.spec.page_bytes
    }

    /// Zeroes the space of an extent. Free space is always zero.
    pub(crate) fn scrub(&self, extent: &Extent) {
        self.device.scrub(extent.device_base, extent.device_bytes());
        self.carve_out.scrub(extent.buddy_base, extent.buddy_bytes());
    }

    fn clear_lines(&self, extent: &Extent) {
        for line in 0..extent.entries / LINE_ENTRIES {
            let address = extent.nibble_base * ENTRY_BYTES as u64 + line * LINE_DATA_BYTES;
            self.lines.write(address).clear();
        }
    }
}

#[cfg(test)]
mod tests;
