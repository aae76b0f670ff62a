//! Compressed buffers: entries at fixed places, independent of their data.

use std::sync::Arc;

use buddy_codec::Codec;
use buddy_core::{ENTRIES_PER_PAGE, ENTRY_BYTES, Extent, Target, Targets};
use cudarc::driver::CudaStream;

use crate::{
    BuddyPool, DeviceSpan, Error, Fault, Stats,
    driver::{self, Region},
    kernels::CodecKernels,
    layout::{BuddyView, Memory, page_table},
    learned::Learned,
    pool::Regions,
    report::{COUNTERS, REPORT_BYTES},
};

/// A buffer in a pool. Operations are enqueued on the caller's stream and return at once, without
/// waiting or allocating, so that they can be captured in a graph. Streams that use one buffer must
/// be ordered by the caller.
#[derive(Debug)]
pub struct BuddyBuffer {
    regions: Arc<Regions>,
    kernels: Arc<CodecKernels>,
    codec: Codec,
    learned: Learned,
    view: BuddyView,
    targets: Box<[Target]>,
    /// Offset of the report in device memory, and its pinned copy.
    report: u64,
    report_copy: Region,
    /// Offset of the first entry's buddy slot.
    buddy: u64,
}

impl BuddyBuffer {
    pub(crate) fn new(
        pool: &mut BuddyPool,
        codec: Codec,
        targets: &Targets,
        entries: u64,
    ) -> Result<Self, Error> {
        let used = pool.used();
        Self::cut(pool, codec, targets, entries).inspect_err(|_| pool.restore(used))
    }

    fn cut(pool: &mut BuddyPool, codec: Codec, targets: &Targets, entries: u64) -> Result<Self, Error> {
        let gpu = pool.regions().gpu.clone();
        if entries > u64::from(u32::MAX) {
            return Err(Error::Range { first: 0, end: entries, entries: u64::from(u32::MAX) });
        }
        let padded = entries.next_multiple_of(ENTRIES_PER_PAGE as u64);
        let uniform = targets.uniform();
        let targets = page_targets(targets, padded / ENTRIES_PER_PAGE as u64)?;
        let (pages, device_bytes, buddy_bytes) = match uniform {
            Some(target) => {
                let bytes = |of_entry: usize| padded * of_entry as u64;
                (Vec::new(), bytes(target.device_bytes()), bytes(target.buddy_bytes()))
            }
            None => page_table(&targets),
        };
        let kernels = gpu.codec(codec.kind())?;
        let nibble_bytes = padded / 2;
        let device = pool.take_device(device_bytes)?;
        let nibbles = pool.take_device(nibble_bytes)?;
        let table = pool.take_device(size_of_val(&pages[..]) as u64)?;
        let report = pool.take_device(REPORT_BYTES)?;
        let buddy = pool.take_buddy(buddy_bytes)?;
        let regions = pool.regions().clone();
        let report_copy = gpu.pinned_region(REPORT_BYTES)?;
        gpu.check("clear the metadata", regions.device.fill(nibbles, nibble_bytes, 0))?;
        gpu.check("clear the report", regions.device.fill(report, REPORT_BYTES, 0xff))?;
        gpu.check("store the page table", regions.device.upload(table, bytemuck::cast_slice(&pages)))?;
        let base = regions.device.address();
        let memory = Memory {
            device: base + device,
            buddy: regions.buddy.address() + buddy,
            nibbles: base + nibbles,
            pages: if pages.is_empty() { 0 } else { base + table },
            fault: base + report + 8 * COUNTERS,
            entries,
            device_bytes: uniform.map_or(0, |target| target.device_bytes() as u32),
            reserved: 0,
        };
        let learned = Learned::of(&gpu, &codec)?;
        let view = BuddyView { memory, params: learned.params() };
        Ok(Self { regions, kernels, codec, learned, view, targets, report, report_copy, buddy })
    }

    /// Returns the number of entries.
    pub fn entries(&self) -> u64 {
        self.view.memory.entries
    }

    /// Returns the codec with its parameters.
    pub fn codec(&self) -> &Codec {
        &self.codec
    }

    /// Returns the device bytes of the codec's parameters, which are outside the pool.
    pub fn learned_bytes(&self) -> u64 {
        self.learned.bytes()
    }

    /// Returns the extent of the address map that holds an entry: its page, or the whole buffer.
    /// Device addresses are the GPU's; buddy offsets count from the start of the carve-out, nibbles
    /// from the buffer's first.
    pub fn extent(&self, entry: u64) -> Extent {
        let page = ENTRIES_PER_PAGE as u64;
        let whole = |target| Extent {
            target,
            entries: self.entries(),
            device_base: self.view.memory.device,
            buddy_base: self.buddy,
            nibble_base: 0,
        };
        if self.view.memory.pages == 0 {
            return whole(self.targets[0]);
        }
        let before = &self.targets[..(entry / page) as usize];
        let sum = |bytes: fn(Target) -> usize| {
            before.iter().map(|&target| bytes(target) as u64 * page).sum::<u64>()
        };
        let extent = whole(self.targets[before.len()]);
        Extent {
            entries: page,
            device_base: extent.device_base + sum(Target::device_bytes),
            buddy_base: extent.buddy_base + sum(Target::buddy_bytes),
            nibble_base: entry / page * page,
            ..extent
        }
    }

    /// Compresses `from` into the entries from `first` on.
    ///
    /// # Errors
    /// [`Error::Range`], [`Error::Shape`], or a driver error.
    pub fn write(&self, on: &CudaStream, first: u64, from: DeviceSpan<'_>) -> Result<(), Error> {
        let Some(from) = self.check_range(first, from)? else { return Ok(()) };
        let launched = self.kernels.write(on, &self.view, from, first);
        self.regions.gpu.check("start writing", launched)
    }

    /// Decompresses the entries from `first` on into `to`. An entry that fails to decode reads as
    /// zeros, and the next report names it.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn read(&self, on: &CudaStream, first: u64, to: DeviceSpan<'_>) -> Result<(), Error> {
        let Some(to) = self.check_range(first, to)? else { return Ok(()) };
        let launched = self.kernels.read(on, &self.view, to, first);
        self.regions.gpu.check("start reading", launched)
    }

    /// Gathers single entries: entry `list[i]`, a 32-bit index, to the i-th of `to`. An index past
    /// the end reads as zeros and is reported as a fault.
    ///
    /// # Errors
    /// [`Error::Shape`] unless `list` has one index per entry of `to`, or a driver error.
    pub fn gather(&self, on: &CudaStream, list: DeviceSpan<'_>, to: DeviceSpan<'_>) -> Result<(), Error> {
        if !self.check_list(list, to)? {
            return Ok(());
        }
        let launched = self.kernels.gather(on, &self.view, to, list);
        self.regions.gpu.check("start gathering", launched)
    }

    /// Scatters single entries: the i-th of `from` to entry `list[i]`. No index may be listed
    /// twice; the entry's content would be undefined.
    ///
    /// # Errors
    /// As for [`gather`](Self::gather).
    pub fn scatter(&self, on: &CudaStream, list: DeviceSpan<'_>, from: DeviceSpan<'_>) -> Result<(), Error> {
        if !self.check_list(list, from)? {
            return Ok(());
        }
        let launched = self.kernels.scatter(on, &self.view, from, list);
        self.regions.gpu.check("start scattering", launched)
    }

    /// Copies all entries into another buffer, whose codec and targets may differ, piece by piece
    /// through the plain memory `through`. This is how an allocation changes its targets while
    /// streams run.
    ///
    /// # Errors
    /// [`Error::Range`] if the other buffer has fewer entries, [`Error::Shape`] if `through` holds
    /// no entry, or a driver error.
    pub fn copy_to(&self, on: &CudaStream, to: &Self, through: DeviceSpan<'_>) -> Result<(), Error> {
        let (entries, piece) = (self.entries(), through.check_entries()?.entries());
        if entries > to.entries() {
            return Err(Error::Range { first: 0, end: entries, entries: to.entries() });
        }
        if piece == 0 {
            return Err(Error::Shape { bytes: 0, address: through.address(), need: "room for an entry" });
        }
        for first in (0..entries).step_by(piece as usize) {
            let bytes = piece.min(entries - first) * ENTRY_BYTES as u64;
            self.read(on, first, through.part(0..bytes))?;
            to.write(on, first, through.part(0..bytes))?;
        }
        Ok(())
    }

    /// Enqueues a report of the buffer's content at this point of the stream.
    /// [`latest`](Self::latest) returns it once the stream has passed.
    ///
    /// # Errors
    /// A driver error.
    pub fn stats(&self, on: &CudaStream) -> Result<(), Error> {
        let (gpu, device) = (&self.regions.gpu, &self.regions.device);
        gpu.alive()?;
        let counts = device.address() + self.report;
        gpu.check("clear the counters", device.fill_on(on, self.report, 8 * COUNTERS, 0))?;
        gpu.check("start counting", self.kernels.stats(on, &self.view.memory, counts))?;
        gpu.check("copy the report", device.copy_on(on, self.report, &self.report_copy, REPORT_BYTES))?;
        gpu.check("clear the fault", device.fill_on(on, self.report + 8 * COUNTERS, 8, 0xff))
    }

    /// Clears the recorded fault, in stream order.
    pub(crate) fn clear_fault(&self, on: &CudaStream) -> Result<(), Error> {
        let (gpu, device) = (&self.regions.gpu, &self.regions.device);
        gpu.alive()?;
        gpu.check("clear the fault", device.fill_on(on, self.report + 8 * COUNTERS, 8, 0xff))
    }

    /// Returns the lowest entry that failed to decode since the fault was last read or cleared.
    /// Waits for the stream.
    pub(crate) fn fault(&self, on: &CudaStream) -> Result<Option<Fault>, Error> {
        let found = driver::read_number(on, self.view.memory.fault);
        Ok(Fault::from_bits(self.regions.gpu.check("read the fault", found)?))
    }

    /// Zeroes all memory of the pool on the device and on the host, and waits, so that no data of
    /// any of its buffers remains; all buffers then hold zeros.
    pub(crate) fn scrub(&self) -> Result<(), Error> {
        let Regions { gpu, device, buddy } = &*self.regions;
        gpu.alive()?;
        gpu.check("overwrite device memory", device.fill(0, device.bytes(), 0))?;
        gpu.check("overwrite buddy memory", buddy.fill(0, buddy.bytes(), 0))?;
        gpu.check("clear the report", device.fill(self.report, REPORT_BYTES, 0xff))
    }

    /// Returns the latest report that the stream has passed.
    pub fn latest(&self) -> Stats {
        Stats::from_report(|i| self.report_copy.peek(i))
    }

    /// Returns the target of an entry.
    pub fn target(&self, entry: u64) -> Target {
        self.targets[if self.view.memory.pages == 0 { 0 } else { entry as usize / ENTRIES_PER_PAGE }]
    }

    /// Returns the argument, passed by value, with which your own kernel reads and writes this
    /// buffer through `buddy_device.cuh`. The launch is unsafe, like every launch: the kernel must
    /// use this buffer's codec and end before the buffer is dropped.
    pub fn view(&self) -> BuddyView {
        self.view
    }

    /// Returns the span, or `None` if it is empty.
    fn check_range<'a>(&self, first: u64, plain: DeviceSpan<'a>) -> Result<Option<DeviceSpan<'a>>, Error> {
        self.regions.gpu.alive()?;
        let entries = plain.check_entries()?.entries();
        let end = first.saturating_add(entries);
        if end > self.entries() {
            return Err(Error::Range { first, end, entries: self.entries() });
        }
        Ok((entries > 0).then_some(plain))
    }

    /// Returns false if there is nothing to do.
    fn check_list(&self, list: DeviceSpan<'_>, plain: DeviceSpan<'_>) -> Result<bool, Error> {
        self.regions.gpu.alive()?;
        let count = plain.check_entries()?.entries();
        let list = list.check(4, 4, "one 32-bit number for each entry")?;
        if list.bytes() / 4 != count {
            return Err(Error::Shape {
                bytes: list.bytes(),
                address: list.address(),
                need: "one 32-bit number for each entry",
            });
        }
        Ok(count > 0)
    }
}

/// Returns the buffer's single target, or the target of each page.
fn page_targets(targets: &Targets, pages: u64) -> Result<Box<[Target]>, Error> {
    if let Some(target) = targets.uniform() {
        return Ok(Box::from([target]));
    }
    let ranges = targets.ranges(pages).map_err(|why| Error::Targets(why.to_string()))?;
    Ok(ranges.iter().flat_map(|range| std::iter::repeat_n(range.target, range.pages as usize)).collect())
}

#[cfg(test)]
mod tests {
    use buddy_core::TargetRange;

    use super::*;

    #[test]
    fn ranges_become_pages() {
        let range = |pages, target| TargetRange { pages, target };
        let targets = Targets::Pages(vec![range(1, Target::X4), range(2, Target::X1)]);
        assert_eq!(*page_targets(&targets, 3).unwrap(), [Target::X4, Target::X1, Target::X1]);
        assert!(matches!(page_targets(&targets, 4), Err(Error::Targets(_))));
        assert_eq!(*page_targets(&Target::X2.into(), 9).unwrap(), [Target::X2]);
    }
}
