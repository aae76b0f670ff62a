//! The structs that kernels take, as `map.cuh` declares them.

use buddy_core::{ENTRIES_PER_PAGE, SECTOR_BYTES, Target};

use crate::source::Params;

/// A buffer as a kernel takes it: the struct `buddy::BuddyView` of `buddy_device.cuh`, passed by
/// value. It holds addresses of the buffer it comes from, and is good for as long as that buffer
/// lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct BuddyView {
    /// Where the buffer lies.
    pub memory: Memory,
    /// What its codec learned.
    pub params: Params,
}

/// Where a buffer lies, in addresses of the GPU: the struct `Memory` of `map.cuh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Memory {
    /// The first entry's part in device memory.
    pub device: u64,
    /// The first entry's slot in buddy memory.
    pub buddy: u64,
    /// The metadata, four bits to an entry.
    pub nibbles: u64,
    /// The page table, or 0 if every page has the same target.
    pub pages: u64,
    /// Where a kernel reports the lowest entry that does not decode.
    pub fault: u64,
    /// Entries of the buffer, without those that fill up its last page.
    pub entries: u64,
    /// Device bytes of an entry, or 0 if pages differ.
    pub device_bytes: u32,
    /// Fills the struct up to a multiple of 8 bytes.
    pub reserved: u32,
}

/// The order of a frozen buffer's entries: the struct `Order` of `frozen.cuh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Order {
    pub(crate) entries: u64,
    pub(crate) row: u32,
    pub(crate) reserved: u32,
}

/// Rows of a matrix that may be written: the struct `Rows` of `given.cu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct MatrixRows {
    pub(crate) order: Order,
    pub(crate) first: u32,
    pub(crate) count: u32,
}

/// A frozen buffer: the struct `Frozen` of `frozen.cuh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct FrozenView {
    pub(crate) device: u64,
    pub(crate) nibbles: u64,
    pub(crate) index: u64,
    pub(crate) overflow: u64,
    pub(crate) fault: u64,
    pub(crate) order: Order,
    pub(crate) device_bytes: u32,
    pub(crate) sectors: u32,
}

/// What packs a frozen buffer: the struct `Packing` of `frozen.cu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Packing {
    pub(crate) from: u64,
    pub(crate) device: u64,
    pub(crate) nibbles: u64,
    pub(crate) index: u64,
    pub(crate) overflow: u64,
    pub(crate) header: u64,
    pub(crate) told: u64,
    pub(crate) sums: u64,
    pub(crate) order: Order,
    pub(crate) device_bytes: u32,
    pub(crate) capacity: u32,
    pub(crate) part_pages: u32,
    pub(crate) reserved: u32,
    pub(crate) params: Params,
    pub(crate) head: [u32; 32],
    pub(crate) out: u64,
}

/// What reads one: the struct `Reading` of `frozen.cu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Reading {
    pub(crate) from: FrozenView,
    pub(crate) to: u64,
    pub(crate) params: Params,
}

/// A matrix of bf16 at 4/3x: the struct of that name in `linear_pipeline.cuh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct PackedMatrixView {
    pub(crate) device: u64,
    pub(crate) nibbles: u64,
    pub(crate) overflow: u64,
    pub(crate) index: u64,
    pub(crate) sectors: u32,
    pub(crate) window: u32,
}

/// What makes some of its rows plain: the struct `Unpacking` of `unpack.cu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Unpacking {
    pub(crate) weights: PackedMatrixView,
    pub(crate) to: u64,
    pub(crate) per_row: u32,
    pub(crate) first_tile: u32,
    pub(crate) tiles: u32,
    pub(crate) rows: u32,
}

/// A linear layer: the struct `Linear` of `linear_pipeline.cuh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct LinearView {
    pub(crate) weights: PackedMatrixView,
    pub(crate) x: u64,
    pub(crate) bias: u64,
    pub(crate) y: u64,
    pub(crate) parts: u64,
    pub(crate) counts: u64,
    pub(crate) outputs: u32,
    pub(crate) inputs: u32,
    pub(crate) tokens: u32,
    pub(crate) output: u32,
}

/// Device bytes of a page at the smallest target: what page offsets are counted in.
pub(crate) const DEVICE_UNIT: u64 = (ENTRIES_PER_PAGE * Target::X16.device_bytes()) as u64;
/// The same for buddy memory.
pub(crate) const BUDDY_UNIT: u64 = (ENTRIES_PER_PAGE * SECTOR_BYTES) as u64;

/// A page's place: device offset, buddy offset, device bytes of an entry, and nothing.
pub type Page = [u32; 4];

/// The page table of pages that lie one after the other, and the bytes they take: device and buddy.
pub(crate) fn page_table(targets: &[Target]) -> (Vec<Page>, u64, u64) {
    let (mut device, mut buddy) = (0, 0);
    let pages = targets.iter().map(|target| {
        let device_units = u32::try_from(device / DEVICE_UNIT).expect("less than 2 TiB of device memory");
        let buddy_units = u32::try_from(buddy / BUDDY_UNIT).expect("less than 8 TiB of buddy memory");
        let page = [device_units, buddy_units, target.device_bytes() as u32, 0];
        device += (ENTRIES_PER_PAGE * target.device_bytes()) as u64;
        buddy += (ENTRIES_PER_PAGE * target.buddy_bytes()) as u64;
        page
    });
    let pages = pages.collect();
    (pages, device, buddy)
}

#[cfg(test)]
mod tests {
    use buddy_core::Extent;

    use super::*;

    /// Each page is an extent of the one address map.
    #[test]
    fn a_page_table_is_a_row_of_extents() {
        let targets: Vec<Target> = Target::ALL.into_iter().cycle().take(23).collect();
        let (pages, device, buddy) = page_table(&targets);
        let (mut device_base, mut buddy_base) = (0, 0);
        for (page, &target) in pages.iter().zip(&targets) {
            let extent =
                Extent { target, entries: ENTRIES_PER_PAGE as u64, device_base, buddy_base, nibble_base: 0 };
            let place = extent.locate(0).unwrap();
            assert_eq!(u64::from(page[0]) * DEVICE_UNIT, place.device.start);
            assert_eq!(u64::from(page[1]) * BUDDY_UNIT, place.buddy.start);
            assert_eq!(u64::from(page[2]), place.device.bytes);
            device_base += extent.device_bytes();
            buddy_base += extent.buddy_bytes();
        }
        assert_eq!((device, buddy), (device_base, buddy_base));
    }
}
