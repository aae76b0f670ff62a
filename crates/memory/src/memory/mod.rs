//! The memory itself: allocate, free, and where an entry lies.

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

/// A memory that keeps data compressed on a device, and what does not fit there in a carve-out of another
/// memory.
///
/// All calls take `&self`: threads share it. Calls on different entries run side by side, except that entries
/// which share a line of metadata (64 in a row) take turns where one of them is written. Each entry is read and
/// written whole; a longer range is not one step. [`free`](Self::free) and [`retarget`](Self::retarget) wait for
/// the calls on their allocation that have begun.
pub struct BuddyMemory {
    pub(crate) spec: Spec,
    pub(crate) device: Region,
    pub(crate) carve_out: Region,
    pub(crate) lines: Lines,
    pub(crate) page_table: PageTable,
    pub(crate) cache: MetadataCache,
    space: Mutex<Space>,
    table: RwLock<Table>,
    /// What moved for allocations that are no more.
    pub(crate) retired: Mutex<Traffic>,
}

/// The live allocations by handle, and the next handle.
#[derive(Default)]
struct Table {
    live: BTreeMap<Handle, Arc<Allocation>>,
    next: u64,
}

impl BuddyMemory {
    /// An empty memory.
    ///
    /// # Errors
    /// [`Error::Spec`] if the spec is none; [`Error::Host`] if this machine has no room for it.
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

    /// What it is made of.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Makes room for data, all zeros at first. Where the memory has compression switched off, the data is kept
    /// as it is, whatever the request says.
    ///
    /// # Errors
    /// A length or page ranges that cannot be, or [`Error::DeviceExhausted`], [`Error::CarveOutExhausted`] or
    /// [`Error::PagesExhausted`].
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
        let mut table = self.table.write().expect("no holder of the table panics");
        let handle = Handle(table.next);
        table.next += 1;
        let allocation = Allocation::new(handle, bytes, codec, first_page, extents);
        table.live.insert(handle, Arc::new(allocation));
        Ok(handle)
    }

    /// Gives an allocation's room back, overwritten with zeros. Waits for calls on it that have begun; later ones
    /// are refused.
    ///
    /// # Errors
    /// [`Error::Freed`] the second time; [`Error::Unknown`] for a handle that this memory has not given out yet.
    pub fn free(&self, handle: Handle) -> Result<(), Error> {
        let allocation = self.find(handle)?;
        let mut extents = allocation.alone()?;
        self.table.write().expect("no holder of the table panics").live.remove(&handle);
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

    /// Where entry `entry` of an allocation lies, as the page table has it. The slot's address is the GBBR plus
    /// its start. Nothing but a retarget changes it.
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

    /// The page-table entry of page `page` of an allocation.
    ///
    /// # Errors
    /// A handle that is not live, or a page past the end.
    pub fn page_entry(&self, handle: Handle, page: u64) -> Result<PageEntry, Error> {
        let allocation = self.find(handle)?;
        let _held = allocation.shared()?;
        allocation.check(page.saturating_mul(self.spec.page_bytes), 1)?;
        self.page_table.get(allocation.first_page + page)
    }

    /// Free device bytes, carve-out bytes and pages, and how scattered they are.
    pub fn free_space(&self) -> FreeSpace {
        self.space().free()
    }

    /// The live allocation of a handle.
    pub(crate) fn find(&self, handle: Handle) -> Result<Arc<Allocation>, Error> {
        let table = self.table.read().expect("no holder of the table panics");
        match table.live.get(&handle) {
            Some(allocation) => Ok(Arc::clone(allocation)),
            None if handle.0 < table.next => Err(Error::Freed(handle)),
            None => Err(Error::Unknown(handle)),
        }
    }

    /// Every live allocation, by handle.
    pub(crate) fn live(&self) -> Vec<Arc<Allocation>> {
        let table = self.table.read().expect("no holder of the table panics");
        table.live.values().cloned().collect()
    }

    pub(crate) fn space(&self) -> MutexGuard<'_, Space> {
        self.space.lock().expect("no holder of the space panics")
    }

    /// Where an allocation begins in the address space of data.
    pub(crate) fn address(&self, allocation: &Allocation) -> u64 {
        allocation.first_page * self.spec.page_bytes
    }

    /// Overwrites the room of an extent with zeros, so that the next owner finds nothing. Free room is always
    /// zero: it was so at first.
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
