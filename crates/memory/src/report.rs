//! Usage and traffic of a memory, as a record.

use std::sync::PoisonError;

use buddy_codec::CodecKind;
use buddy_core::{ENTRY_BYTES, Extent, SizeClass};
#[cfg(feature = "records")]
use buddy_record::{Record, RecordKind};
use serde::{Deserialize, Serialize};

use crate::{
    BuddyMemory, Error, FreeSpace, Handle, Traffic,
    allocation::Allocation,
    line::{LINE_BYTES, LINE_DATA_BYTES, LINE_ENTRIES},
};

/// Memory use and traffic of some data.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Requested bytes of data.
    pub bytes: u64,
    /// Device bytes, in whole pages.
    pub device_bytes: u64,
    /// Carve-out bytes, in whole pages.
    pub buddy_bytes: u64,
    /// Metadata bytes.
    pub metadata_bytes: u64,
    /// Effective ratio: data bytes per device byte; `None` without data.
    pub ratio: Option<f64>,
    /// Current number of compressed entries per size class, in the order of [`SizeClass::ALL`].
    pub entries_by_class: [u64; 6],
    /// Current number of compressed entries that overflow.
    pub entries_overflowing: u64,
    /// Entries and sectors moved.
    pub traffic: Traffic,
    /// Share of device traffic saved by compression.
    pub bandwidth_saved: Option<f64>,
    /// Hit rate of the metadata cache.
    pub metadata_hit_rate: Option<f64>,
}

/// Report of one allocation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AllocationReport {
    /// Handle of the allocation.
    pub handle: Handle,
    /// Codec; `None` if uncompressed.
    pub codec: Option<CodecKind>,
    /// Page ranges and their locations.
    pub extents: Vec<Extent>,
    /// Memory use, classes and traffic.
    pub usage: Usage,
}

/// Report of a whole memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemoryReport {
    /// Bytes of the carve-out.
    pub carve_out_bytes: u64,
    /// Bytes of the metadata region.
    pub metadata_bytes: u64,
    /// Metadata bytes per byte of capacity: the paper's 0.4%.
    pub metadata_overhead: f64,
    /// Free space.
    pub free: FreeSpace,
    /// Totals of all allocations; the traffic includes freed ones.
    pub total: Usage,
    /// Every live allocation, by handle.
    pub allocations: Vec<AllocationReport>,
}

#[cfg(feature = "records")]
impl RecordKind for MemoryReport {
    const KIND: &'static str = "memory";
    const VERSION: u32 = 1;
}

impl BuddyMemory {
    /// Returns the report. Not a snapshot: concurrent calls may be included in part.
    pub fn report(&self) -> MemoryReport {
        let retired = *self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        let mut total = Usage { traffic: retired, ..Usage::default() };
        let mut allocations = Vec::new();
        for allocation in self.live() {
            // A concurrently freed allocation has added its traffic to the memory's.
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

    /// Returns the report as a record, with the spec.
    #[cfg(feature = "records")]
    pub fn record(&self) -> Record<MemoryReport> {
        let mut record = Record::new(self.report());
        record.spec = serde_json::to_value(&self.spec).expect("a spec has string keys");
        record
    }

    /// Returns the report of one allocation.
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

    /// Counts the compressed entries of an allocation by their current nibbles.
    fn count_entries(&self, allocation: &Allocation, usage: &mut Usage) -> Result<(), Error> {
        let base = self.address(allocation);
        let mut left = allocation.bytes.div_ceil(ENTRY_BYTES as u64);
        for address in (base..base + allocation.bytes).step_by(LINE_DATA_BYTES as usize) {
            let extent = self.page_table.line_extent(address)?;
            let line = self.lines.read(address);
            let here = if extent.target.compresses() { left.min(LINE_ENTRIES) } else { 0 };
            for entry in 0..here as usize {
                // Invalid nibbles are reported when the entry is read.
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

    /// Computes the derived values.
    fn finish(&mut self) {
        self.ratio = (self.device_bytes > 0).then(|| self.bytes as f64 / self.device_bytes as f64);
        self.bandwidth_saved = self.traffic.bandwidth_saved();
        self.metadata_hit_rate = self.traffic.metadata_hit_rate();
    }

    /// Returns the current number of compressed entries of a class.
    pub fn entries(&self, class: SizeClass) -> u64 {
        self.entries_by_class[class.index()]
    }
}
