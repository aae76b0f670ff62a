//! Page-table entries: 64 bits, 24 of them added by the paper (`docs/reference/format.md`,
//! "Page-table entry").

use std::sync::atomic::Ordering::Relaxed;

use buddy_core::{ENTRY_BYTES, Extent, Target};

use crate::{
    Error,
    line::{LINE_DATA_BYTES, LINE_ENTRIES},
    sync::AtomicU64,
};

/// Bits of the device frame.
const FRAME_BITS: u32 = 40;
/// Bits of the buddy offset.
const OFFSET_BITS: u32 = 20;

/// Decoded page-table entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageEntry {
    /// Device address of the page's device part, in units of [`PageEntry::FRAME_BYTES`].
    pub frame: u64,
    /// Target of the page. The compressed bit is clear for [`Target::Uncompressed`] and set for
    /// every ratio.
    pub target: Target,
    /// Offset of the buddy page from the GBBR, in quarter pages.
    pub buddy_quarters: u32,
}

impl PageEntry {
    /// Unit of device addresses: the device bytes of an 8 KiB page at 16x.
    pub const FRAME_BYTES: u64 = 512;
    /// Bits added to a page-table entry by Buddy Compression.
    pub const ADDED_BITS: u32 = u64::BITS - FRAME_BITS;
    /// Exclusive limit of the offset: 20 bits of quarter pages.
    pub const BUDDY_LIMIT: u64 = 1 << OFFSET_BITS;

    /// Encodes the entry: frame in bits 0 to 39, compressed in bit 40, target in bits 41 to 43,
    /// offset in bits 44 to 63.
    ///
    /// # Errors
    /// [`Error::PageEntry`] if the frame or the offset is out of range.
    pub fn to_bits(self) -> Result<u64, Error> {
        let frame = below("device frame", self.frame, 1 << FRAME_BITS)?;
        let offset = below("buddy offset", u64::from(self.buddy_quarters), Self::BUDDY_LIMIT)?;
        let ratio = Target::ALL.iter().position(|ratio| *ratio == self.target);
        let extra = ratio.map_or(0, |number| 1 | (number as u64) << 1) | offset << 4;
        Ok(frame | extra << FRAME_BITS)
    }

    /// Decodes an entry.
    ///
    /// # Errors
    /// [`Error::PageEntry`] for target numbers 5 to 7, and for a non-zero number in an uncompressed
    /// page.
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

/// The page table: one encoded entry per page of the data address space.
pub(crate) struct PageTable {
    entries: Box<[AtomicU64]>,
    page_bytes: u64,
}

impl PageTable {
    pub(crate) fn new(pages: u64, page_bytes: u64) -> Self {
        Self { entries: (0..pages).map(|_| AtomicU64::new(0)).collect(), page_bytes }
    }

    /// Maps the pages of `extent`, which its nibbles identify.
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
            let bits = entry.to_bits().expect("a valid spec has only addressable frames");
            self.entries[(first + page) as usize].store(bits, Relaxed);
        }
    }

    /// Returns the entry of page `page`.
    #[inline]
    pub(crate) fn get(&self, page: u64) -> Result<PageEntry, Error> {
        PageEntry::from_bits(self.entries[page as usize].load(Relaxed))
    }

    /// Returns whether the page of the data at `address` is compressed.
    #[inline]
    pub(crate) fn compresses(&self, address: u64) -> bool {
        self.entries[(address / self.page_bytes) as usize].load(Relaxed) >> FRAME_BITS & 1 == 1
    }

    /// Returns the 64 entries of the metadata line at `address` as an extent.
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

    /// The worked example in `docs/reference/format.md`.
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
    fn reserved_target_numbers_are_errors() {
        for number in 0..8u64 {
            let target = |bit: u64| PageEntry::from_bits(number << 41 | bit << 40).map(|entry| entry.target);
            assert_eq!(target(1).ok(), Target::ALL.get(number as usize).copied());
            assert_eq!(target(0).ok(), (number == 0).then_some(Target::Uncompressed));
        }
    }

    #[test]
    fn a_line_of_a_large_page_is_mapped_like_its_extent() {
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
            fn page_entries_round_trip(
            frame in 0u64..1 << 40,
            target in proptest::sample::select([&Target::ALL[..], &[Target::Uncompressed]].concat()),
            buddy_quarters in 0u32..1 << 20,
        ) {
            let entry = PageEntry { frame, target, buddy_quarters };
            prop_assert_eq!(PageEntry::from_bits(entry.to_bits().unwrap()), Ok(entry));
        }
    }
}
