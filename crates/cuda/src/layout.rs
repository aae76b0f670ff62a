//! The structs that kernels take, as `map.cuh` declares them.

use buddy_core::{ENTRIES_PER_PAGE, SECTOR_BYTES, Target};

use crate::source::Params;

/// A buffer as a kernel argument: the struct `buddy::BuddyView` of `buddy_device.cuh`, passed by
/// value. It holds the buffer's addresses and is valid as long as the buffer lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct BuddyView {
    /// Addresses of the buffer.
    pub memory: Memory,
    /// Parameters of its codec.
    pub params: Params,
}

/// GPU addresses of a buffer: the struct `Memory` of `map.cuh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Memory {
    /// The first entry's part in device memory.
    pub device: u64,
    /// The first entry's slot in buddy memory.
    pub buddy: u64,
    /// The metadata, four bits to an entry.
    pub nibbles: u64,
    /// The page table, or 0 if all pages have the same target.
    pub pages: u64,
    /// Address where kernels report the lowest entry that failed to decode.
    pub fault: u64,
    /// Entries of the buffer, without the padding of its last page.
    pub entries: u64,
    /// Device bytes of an entry, or 0 if pages differ.
    pub device_bytes: u32,
    /// Pads the struct to a multiple of 8 bytes.
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

/// Rows of a writable matrix: the struct `Rows` of `external.cu`.
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

/// Arguments that pack a frozen buffer: the struct `Packing` of `frozen.cu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Packing {
    pub(crate) from: u64,
    pub(crate) device: u64,
    pub(crate) nibbles: u64,
    pub(crate) index: u64,
    pub(crate) overflow: u64,
    pub(crate) header: u64,
    /// `told` in `frozen.cu`: pinned host memory for the number of overflow sectors, or 0.
    pub(crate) status: u64,
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

/// Arguments that read one: the struct `Reading` of `frozen.cu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Reading {
    pub(crate) from: FrozenView,
    pub(crate) to: u64,
    pub(crate) params: Params,
}

/// A bf16 matrix packed at 4/3x: the struct of the same name in `linear_pipeline.cuh`.
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

/// A tight matrix: the struct `TightView` of `tight_view.cuh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct TightView {
    pub(crate) columns: u64,
    pub(crate) flags: u64,
    pub(crate) words: u64,
    pub(crate) index: u64,
    pub(crate) rows: u64,
    pub(crate) count: u32,
    pub(crate) per_row: u32,
}

/// Arguments that read one: the struct `TightReading` of `tight.cu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct TightReading {
    pub(crate) from: TightView,
    pub(crate) to: u64,
    pub(crate) rows: u32,
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) reserved: u32,
}

/// Arguments that unpack rows of it: the struct `Unpacking` of `unpack.cu`.
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
    /// The route of a grouped layer, else 0.
    pub(crate) route: u64,
}

/// Assignments of tokens to experts: the struct `Routing` of `route.cu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct RoutingView {
    pub(crate) ids: u64,
    pub(crate) x: u64,
    pub(crate) rows: u64,
    pub(crate) route: u64,
    pub(crate) assignments: u32,
    pub(crate) top: u32,
    pub(crate) experts: u32,
    pub(crate) tile: u32,
    pub(crate) chunks: u32,
    pub(crate) room: u32,
    pub(crate) wide: u32,
    pub(crate) gathers: u32,
}

/// The sum of experts' results: the struct `Combining` of `route.cu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct CombiningView {
    pub(crate) rows: u64,
    pub(crate) route: u64,
    pub(crate) weights: u64,
    pub(crate) y: u64,
    pub(crate) top: u32,
    pub(crate) chunks: u32,
    pub(crate) first_position: u32,
    pub(crate) narrow: u32,
}

/// Device bytes of a page at the smallest target, the unit of page offsets.
pub(crate) const DEVICE_UNIT: u64 = (ENTRIES_PER_PAGE * Target::X16.device_bytes()) as u64;
/// The same for buddy memory.
pub(crate) const BUDDY_UNIT: u64 = (ENTRIES_PER_PAGE * SECTOR_BYTES) as u64;

/// A row of the page table: device offset, buddy offset, device bytes of an entry, and padding.
pub type Page = [u32; 4];

/// Returns the page table of consecutive pages, and their device and buddy bytes.
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

    /// Compares each page with an extent of the address map.
    #[test]
    fn every_page_is_an_extent_of_the_address_map() {
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
