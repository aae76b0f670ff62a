//! Memory pools for compressed buffers: device memory, and a carve-out for overflow.

use std::sync::Arc;

use buddy_codec::Codec;
use buddy_core::{ENTRIES_PER_PAGE, Target, TargetRange, Targets};

use crate::{BuddyBuffer, DeviceSpan, Error, Gpu, Page, driver::Region, report::REPORT_BYTES};

/// Location of the carve-out. A peer GPU would be a third choice: its memory has an address here as
/// well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Carveout {
    /// Pinned host memory, accessed over the link, as in the paper.
    Host,
    /// Device memory: no link, for measurements of everything else.
    Device,
}

/// Alignment of allocations.
const ALIGN: u64 = 512;

/// Device memory and a carve-out, allocated once. Buffers are cut from it one after the other;
/// clearing the pool releases them.
#[derive(Debug)]
pub struct BuddyPool {
    regions: Arc<Regions>,
    device_used: u64,
    buddy_used: u64,
}

/// The memory, which buffers keep alive.
#[derive(Debug)]
pub(crate) struct Regions {
    pub(crate) gpu: Gpu,
    pub(crate) device: Region,
    pub(crate) buddy: Region,
}

impl BuddyPool {
    /// Allocates the pool's memory.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`], or [`Error::Pinned`] with the requested bytes and the host's
    /// limits.
    pub fn new(gpu: &Gpu, device_bytes: u64, carveout: Carveout, buddy_bytes: u64) -> Result<Self, Error> {
        let device = gpu.device_region(device_bytes)?;
        let buddy = match carveout {
            Carveout::Host => gpu.pinned_region(buddy_bytes)?,
            Carveout::Device => gpu.device_region(buddy_bytes)?,
        };
        let regions = Arc::new(Regions { gpu: gpu.clone(), device, buddy });
        Ok(Self { regions, device_used: 0, buddy_used: 0 })
    }

    /// Creates a buffer of `entries` entries, filled with zeros, with all its memory. Target ranges
    /// are in pages of 64 entries. Every entry has metadata, so that uncompressed ones are stored
    /// as at 1x.
    ///
    /// # Errors
    /// [`Error::Targets`] for ranges that do not cover its pages, [`Error::Full`],
    /// [`Error::NoKernels`], or an error of the compiler or the driver.
    pub fn buffer(
        &mut self,
        codec: Codec,
        targets: impl Into<Targets>,
        entries: u64,
    ) -> Result<BuddyBuffer, Error> {
        BuddyBuffer::new(self, codec, &targets.into(), entries)
    }

    /// Releases the memory of all buffers.
    ///
    /// # Errors
    /// [`Error::InUse`] if a buffer is still alive.
    pub fn clear(&mut self) -> Result<(), Error> {
        if Arc::strong_count(&self.regions) > 1 {
            return Err(Error::InUse);
        }
        (self.device_used, self.buddy_used) = (0, 0);
        Ok(())
    }

    /// Returns the device bytes that no buffer has.
    pub fn device_left(&self) -> u64 {
        self.regions.device.bytes() - self.device_used
    }

    /// Returns the device memory and the carve-out as plain memory, which buffers share.
    pub fn spans(&self) -> [DeviceSpan<'_>; 2] {
        // SAFETY: regions of this GPU that live as long as the pool.
        [&self.regions.device, &self.regions.buddy]
            .map(|region| unsafe { DeviceSpan::from_raw(region.address(), region.bytes()) })
    }

    /// Returns the device and buddy bytes of a pool for one buffer of this size.
    pub fn room_for(target: Target, entries: u64) -> (u64, u64) {
        let pages = entries.div_ceil(ENTRIES_PER_PAGE as u64);
        room(&[TargetRange { pages, target }])
    }

    /// The same for a buffer with targets by page range.
    ///
    /// # Errors
    /// [`Error::Targets`] for ranges that do not cover its pages.
    pub fn room_for_pages(targets: &Targets, entries: u64) -> Result<(u64, u64), Error> {
        let ranges = targets.ranges(entries.div_ceil(ENTRIES_PER_PAGE as u64));
        ranges.map(|ranges| room(&ranges)).map_err(|why| Error::Targets(why.to_string()))
    }

    pub(crate) fn regions(&self) -> &Arc<Regions> {
        &self.regions
    }

    /// Cuts device memory; returns the offset of its first byte.
    pub(crate) fn take_device(&mut self, bytes: u64) -> Result<u64, Error> {
        take("device", &mut self.device_used, bytes, self.regions.device.bytes())
    }

    /// Cuts buddy memory; returns the offset of its first byte in the carve-out.
    pub(crate) fn take_buddy(&mut self, bytes: u64) -> Result<u64, Error> {
        take("buddy", &mut self.buddy_used, bytes, self.regions.buddy.bytes())
    }

    /// Releases everything cut since the pool had used this much.
    pub(crate) fn restore(&mut self, used: (u64, u64)) {
        (self.device_used, self.buddy_used) = used;
    }

    pub(crate) fn used(&self) -> (u64, u64) {
        (self.device_used, self.buddy_used)
    }
}

/// Returns the device and buddy bytes of a buffer with these ranges.
fn room(ranges: &[TargetRange]) -> (u64, u64) {
    let per_page = ENTRIES_PER_PAGE as u64;
    let sum = |bytes: fn(Target) -> usize| {
        ranges.iter().map(|range| range.pages * per_page * bytes(range.target) as u64).sum::<u64>()
    };
    let pages: u64 = ranges.iter().map(|range| range.pages).sum();
    let table = if ranges.len() > 1 { pages * size_of::<Page>() as u64 } else { 0 };
    let parts = [sum(Target::device_bytes), pages * per_page / 2, table, REPORT_BYTES];
    let aligned = |bytes: u64| bytes.next_multiple_of(ALIGN);
    (parts.into_iter().map(aligned).sum(), aligned(sum(Target::buddy_bytes)))
}

fn take(region: &'static str, used: &mut u64, bytes: u64, capacity: u64) -> Result<u64, Error> {
    let start = *used;
    let end = start.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(ALIGN));
    match end {
        Some(end) if end <= capacity => {
            *used = end;
            Ok(start)
        }
        _ => Err(Error::Full { region, asked: bytes, left: capacity - start }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_cut_in_aligned_pieces_until_it_is_used_up() {
        let mut used = 0;
        assert_eq!(take("device", &mut used, 100, 2048), Ok(0));
        assert_eq!(take("device", &mut used, 512, 2048), Ok(512));
        assert_eq!(
            take("device", &mut used, 1025, 2048),
            Err(Error::Full { region: "device", asked: 1025, left: 1024 })
        );
        assert_eq!(take("device", &mut used, 1024, 2048), Ok(1024));
        assert_eq!(used, 2048);
        assert!(take("buddy", &mut used, u64::MAX, 2048).is_err());
    }
    /// One page at 4x and two at 1x: entries, nibbles, a page table and the report.
    #[test]
    fn ranges_take_their_own_room_and_a_page_table() {
        let range = |pages, target| TargetRange { pages, target };
        let both = Targets::Pages(vec![range(1, Target::X4), range(2, Target::X1)]);
        let report = REPORT_BYTES.next_multiple_of(ALIGN);
        let room = BuddyPool::room_for_pages(&both, 190).unwrap();
        assert_eq!(room, (64 * 32 + 128 * 128 + 512 + 512 + report, 64 * 96));
        assert_eq!(BuddyPool::room_for(Target::X2, 65), (128 * 64 + 512 + report, 128 * 64));
        assert!(matches!(BuddyPool::room_for_pages(&both, 193), Err(Error::Targets(_))));
    }
}
