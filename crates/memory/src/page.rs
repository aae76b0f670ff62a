//! Page-table entries: 64 bits, of which 24 are the paper's addition (`docs/reference/format.md`, "Page-table entry").

use std::sync::atomic::Ordering::Relaxed;

use buddy_core::{ENTRY_BYTES, Extent, Target};

use crate::{
    Error,
    line::{LINE_DATA_BYTES, LINE_ENTRIES},
    sync::AtomicU64,
};

/// Bits of the device address.
const FRAME_BITS: u32 = 40;
/// Bits of the buddy page's offset.
const OFFSET_BITS: u32 = 20;

/// What a page-table entry says of one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageEntry {
    /// Device address of the page's device part, in units of [`PageEntry::FRAME_BYTES`].
    pub frame: u64,
    /// The target of its entries. The bit that says whether the page is compressed is clear for
    /// [`Target::Uncompressed`] and set for every ratio.
    pub target: Target,
    /// Offset of its buddy page from the GBBR, in quarters of a page.
    pub buddy_quarters: u32,
}

impl PageEntry {
    /// The unit of device addresses: a 16x page of 8 KiB has this much on the device.
    pub const FRAME_BYTES: u64 = 512;
    /// Bits that Buddy Compression adds to a page-table entry.
    pub const ADDED_BITS: u32 = u64::BITS - FRAME_BITS;
    /// The first offset that is too large: 20 bits of quarter pages.
    pub const BUDDY_LIMIT: u64 = 1 << OFFSET_BITS;

    /// Packs the entry: the frame in bits 0 to 39, then the 24 bits that Buddy adds: compressed (bit 40), target
    /// (bits 41 to 43), offset (bits 44 to 63).
    ///
    /// # Errors
    /// [`Error::PageEntry`] if the frame or the offset has too many bits.
    pub fn to_bits(self) -> Result<u64, Error> {
        let frame = below("device frame", self.frame, 1 << FRAME_BITS)?;
        let offset = below("buddy offset", u64::from(self.buddy_quarters), Self::BUDDY_LIMIT)?;
        let ratio = Target::ALL.iter().position(|ratio| *ratio == self.target);
        let extra = ratio.map_or(0, |number| 1 | (number as u64) << 1) | offset << 4;
        Ok(frame | extra << FRAME_BITS)
    }

    /// Unpacks an entry.
    ///
    /// # Errors
    /// [`Error::PageEntry`] for the target numbers 5 to 7, which name none, and for a number other than 0 of a page that
    /// is not compressed.
    pub fn from_bits(bits: u64) -> Result<Self, Error> {
        let extra = bits >> FRAME_BITS;
        let compressed = extra & 1 == 1;
        let numbers = if compressed { Target::ALL.len() as u64 } else { 1 };
        let number = below("target", extra >> 1 & 7, numbers)?;
        Ok(Self {
            frame: bits & ((1 << FRAME_BITS) - 1),
            target: if compressed { Target::ALL[number as usize] } else { Target::Uncompressed },
            buddy_quarters: (extra >> 4) as u32,
        })
    }
}

fn below(field: &'static str, value: u64, limit: u64) -> Result<u64, Error> {
    if value < limit { Ok(value) } else { Err(Error::PageEntry { field, value, limit }) }
}

/// The page table: one packed entry for each page of the data's address space.
pub(crate) struct PageTable {
    entries: Box<[AtomicU64]>,
    page_bytes: u64,
}

impl PageTable {
    pub(crate) fn new(pages: u64, page_bytes: u64) -> Self {
        Self { entries: (0..pages).map(|_| AtomicU64::new(0)).collect(), page_bytes }
    }

    /// Points the pages of `extent` at it. Its nibbles say which pages they are.
    pub(crate) fn map(&self, extent: &Extent) {
        let entries = self.page_bytes / ENTRY_BYTES as u64;
        let first = extent.nibble_base / entries;
        for page in 0..extent.entries / entries {
            let device = extent.device_base + page * entries * extent.target.device_bytes() as u64;
            let buddy = extent.buddy_base + page * entries * extent.target.buddy_bytes() as u64;
            let entry = PageEntry {
                frame: device / PageEntry::FRAME_BYTES,
                target: extent.target,
                buddy_quarters: (buddy / (self.page_bytes / 4)) as u32,
            };
            let bits = entry.to_bits().expect("a valid spec has no address that an entry cannot hold");
            self.entries[(first + page) as usize].store(bits, Relaxed);
        }
    }

    /// The entry of page `page`.
    #[inline]
    pub(crate) fn get(&self, page: u64) -> Result<PageEntry, Error> {
        PageEntry::from_bits(self.entries[page as usize].load(Relaxed))
    }

    /// Whether the page of the data at `address` is compressed.
    #[inline]
    pub(crate) fn compresses(&self, address: u64) -> bool {
        self.entries[(address / self.page_bytes) as usize].load(Relaxed) >> FRAME_BITS & 1 == 1
    }

    /// The 64 entries that share a metadata line with the data at `address`, as the page table has them.
    #[inline]
    pub(crate) fn line_extent(&self, address: u64) -> Result<Extent, Error> {
        let page = self.get(address / self.page_bytes)?;
        let line = address / LINE_DATA_BYTES;
        let before = line % (self.page_bytes / LINE_DATA_BYTES) * LINE_ENTRIES;
        let buddy_page = u64::from(page.buddy_quarters) * (self.page_bytes / 4);
        Ok(Extent {
            target: page.target,
            entries: LINE_ENTRIES,
            device_base: page.frame * PageEntry::FRAME_BYTES + before * page.target.device_bytes() as u64,
            buddy_base: buddy_page + before * page.target.buddy_bytes() as u64,
            nibble_base: line * LINE_ENTRIES,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The worked example of `docs/reference/format.md`.
    #[test]
    fn the_page_of_entry_5_of_a_2x_allocation() {
        let entry = PageEntry {
            frame: 0x10000 / PageEntry::FRAME_BYTES,
            target: Target::X2,
            buddy_quarters: 0x4000 / 2048,
        };
        assert_eq!(entry.to_bits(), Ok(0x0000_8500_0000_0080));
    }

    #[test]
    fn the_largest_values_fit_and_one_more_does_not() {
        let largest = PageEntry { frame: (1 << 40) - 1, target: Target::X16, buddy_quarters: (1 << 20) - 1 };
        let bits = largest.to_bits().unwrap();
        assert_eq!(bits, 0xffff_f9ff_ffff_ffff);
        assert_eq!(PageEntry::from_bits(bits), Ok(largest));
        assert!(PageEntry { frame: 1 << 40, ..largest }.to_bits().is_err());
        let offset = PageEntry { buddy_quarters: 1 << 20, ..largest }.to_bits().unwrap_err();
        assert_eq!(offset.to_string(), "page-table entry: buddy offset 0x100000 is not below 0x100000");
    }

    #[test]
    fn three_target_numbers_name_none() {
        for number in 0..8u64 {
            let target = |bit: u64| PageEntry::from_bits(number << 41 | bit << 40).map(|entry| entry.target);
            assert_eq!(target(1).ok(), Target::ALL.get(number as usize).copied());
            assert_eq!(target(0).ok(), (number == 0).then_some(Target::Uncompressed));
        }
    }

    #[test]
    fn a_line_of_a_large_page_lies_where_the_extent_says() {
        let table = PageTable::new(8, 1 << 16);
        let extent = Extent {
            target: Target::X4Over3,
            entries: 2 * 512,
            device_base: 0x9000,
            buddy_base: 3 << 14,
            nibble_base: 3 * 512,
        };
        table.map(&extent);
        for entry in 0..extent.entries {
            let address = (extent.nibble_base + entry) * ENTRY_BYTES as u64;
            let line = table.line_extent(address).unwrap();
            assert_eq!(line.locate(entry % 64), extent.locate(entry));
        }
    }

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(
            frame in 0u64..1 << 40,
            target in proptest::sample::select([&Target::ALL[..], &[Target::Uncompressed]].concat()),
            buddy_quarters in 0u32..1 << 20,
        ) {
            let entry = PageEntry { frame, target, buddy_quarters };
            prop_assert_eq!(PageEntry::from_bits(entry.to_bits().unwrap()), Ok(entry));
        }
    }
}
