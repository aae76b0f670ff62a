//! What a memory holds and what it did, as a record.

use std::sync::PoisonError;

use buddy_codec::CodecKind;
use buddy_core::{ENTRY_BYTES, Extent, Record, RecordKind, SizeClass};
use serde::{Deserialize, Serialize};

use crate::{
    BuddyMemory, Error, FreeSpace, Handle, Spec, Traffic,
    allocation::Allocation,
    line::{LINE_BYTES, LINE_DATA_BYTES, LINE_ENTRIES},
};

/// What some data takes, and what moved on its behalf.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Bytes of data, as they were asked for.
    pub bytes: u64,
    /// Bytes of device memory for it, whole pages.
    pub device_bytes: u64,
    /// Bytes of the carve-out for it, whole pages.
    pub buddy_bytes: u64,
    /// Bytes of metadata for it.
    pub metadata_bytes: u64,
    /// The effective ratio: bytes of data for each byte of device memory; `None` where there is no data.
    pub ratio: Option<f64>,
    /// Compressed entries now of each size class, in the order of [`SizeClass::ALL`].
    pub entries_by_class: [u64; 6],
    /// Compressed entries now that do not fit their device part.
    pub entries_overflowing: u64,
    /// Entries and sectors that moved on its behalf.
    pub traffic: Traffic,
    /// The share of device traffic that compression saved.
    pub bandwidth_saved: Option<f64>,
    /// The share of metadata accesses that the cache served.
    pub metadata_hit_rate: Option<f64>,
}

/// The report on one allocation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AllocationReport {
    /// The handle that it was allocated under.
    pub handle: Handle,
    /// Its codec; `None` where it is kept as it is.
    pub codec: Option<CodecKind>,
    /// Its ranges of pages and where they lie.
    pub extents: Vec<Extent>,
    /// Its room, its classes and its traffic.
    pub usage: Usage,
}

/// The report on a whole memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemoryReport {
    /// Bytes of the carve-out.
    pub carve_out_bytes: u64,
    /// Bytes of the metadata region.
    pub metadata_bytes: u64,
    /// Bytes of metadata for each byte of data that the memory can hold: the paper's 0.4%.
    pub metadata_overhead: f64,
    /// Room that is left.
    pub free: FreeSpace,
    /// All allocations together; the traffic includes that of freed ones.
    pub total: Usage,
    /// Every live allocation, by handle.
    pub allocations: Vec<AllocationReport>,
}

impl RecordKind for MemoryReport {
    const KIND: &'static str = "memory";
    const VERSION: u32 = 1;
}

impl BuddyMemory {
    /// What it holds and what it did. Each line is looked at on its own: calls that run meanwhile may be in it or
    /// not.
    pub fn report(&self) -> MemoryReport {
        let retired = *self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        let mut total = Usage { traffic: retired, ..Usage::default() };
        let mut allocations = Vec::new();
        for allocation in self.live() {
            // One that is freed meanwhile has left its traffic with the memory.
            if let Ok(report) = self.report_on(&allocation) {
                total.add(&report.usage);
                allocations.push(report);
            }
        }
        total.finish();
        let metadata_bytes = if self.spec.compression { self.lines.bytes() } else { 0 };
        MemoryReport {
            carve_out_bytes: self.spec.carve_out_bytes(),
            metadata_bytes,
            metadata_overhead: metadata_bytes as f64 / self.spec.capacity_bytes() as f64,
            free: self.free_space(),
            total,
            allocations,
        }
    }

    /// The report in its envelope, with the spec.
    pub fn record(&self) -> Record<MemoryReport> {
        let mut record = Record::new(self.report());
        record.spec = serde_json::to_value::<&Spec>(&self.spec).expect("a spec has string keys");
        record
    }

    /// One allocation.
    ///
    /// # Errors
    /// A handle that is not live.
    pub fn report_allocation(&self, handle: Handle) -> Result<AllocationReport, Error> {
        self.report_on(&*self.find(handle)?)
    }

    fn report_on(&self, allocation: &Allocation) -> Result<AllocationReport, Error> {
        let extents = allocation.shared()?;
        let mut usage = Usage {
            bytes: allocation.bytes,
            device_bytes: extents.iter().map(Extent::device_bytes).sum(),
            buddy_bytes: extents.iter().map(Extent::buddy_bytes).sum(),
            traffic: allocation.traffic.get(),
            ..Usage::default()
        };
        let compressed = extents.iter().filter(|extent| extent.target.compresses());
        usage.metadata_bytes = compressed.map(|extent| extent.entries / LINE_ENTRIES * LINE_BYTES).sum();
        self.count_entries(allocation, &mut usage)?;
        usage.finish();
        let codec = allocation.codec.as_ref().map(buddy_codec::Codec::kind);
        Ok(AllocationReport { handle: allocation.handle, codec, extents: extents.clone(), usage })
    }

    /// Counts the compressed entries of an allocation by what their nibbles say now.
    fn count_entries(&self, allocation: &Allocation, usage: &mut Usage) -> Result<(), Error> {
        let base = self.address(allocation);
        let mut left = allocation.bytes.div_ceil(ENTRY_BYTES as u64);
        for address in (base..base + allocation.bytes).step_by(LINE_DATA_BYTES as usize) {
            let extent = self.page_table.line_extent(address)?;
            let line = self.lines.read(address);
            let here = if extent.target.compresses() { left.min(LINE_ENTRIES) } else { 0 };
            for entry in 0..here as usize {
                // A nibble that is none is reported by whoever reads the entry.
                let Ok(nibble) = line.get(entry) else { continue };
                usage.entries_by_class[nibble.class().index()] += 1;
                usage.entries_overflowing += u64::from(!extent.target.holds(nibble.class()));
            }
            left = left.saturating_sub(LINE_ENTRIES);
        }
        Ok(())
    }
}

impl Usage {
    fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.device_bytes += other.device_bytes;
        self.buddy_bytes += other.buddy_bytes;
        self.metadata_bytes += other.metadata_bytes;
        self.entries_overflowing += other.entries_overflowing;
        self.traffic = self.traffic.plus(&other.traffic);
        for (sum, more) in self.entries_by_class.iter_mut().zip(other.entries_by_class) {
            *sum += more;
        }
    }

    /// Works out what follows from the counts.
    fn finish(&mut self) {
        self.ratio = (self.device_bytes > 0).then(|| self.bytes as f64 / self.device_bytes as f64);
        self.bandwidth_saved = self.traffic.bandwidth_saved();
        self.metadata_hit_rate = self.traffic.metadata_hit_rate();
    }

    /// How many compressed entries are of a class now.
    pub fn entries(&self, class: SizeClass) -> u64 {
        self.entries_by_class[class.index()]
    }
}
