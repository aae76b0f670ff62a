//! The address map: from an entry of an extent to its device bytes, its buddy slot and its nibble.
//!
//! The functional memory, the simulator and the CUDA kernels share this arithmetic
//! (`docs/reference/format.md`, "The address map"). It does not depend on the data, so a change in
//! compressibility never moves an entry.

use serde::{Deserialize, Serialize};

use crate::{Error, SECTOR_BYTES, SizeClass, Target};

/// A run of consecutive entries with one target: an allocation, or a range of its pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Extent {
    /// Target of every entry.
    pub target: Target,
    /// Number of entries.
    pub entries: u64,
    /// Device address of the first entry's device part.
    pub device_base: u64,
    /// Offset of the first entry's slot from the global buddy base address (GBBR).
    pub buddy_base: u64,
    /// Index of the first entry's nibble in the metadata region.
    pub nibble_base: u64,
}

/// A byte range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Span {
    /// Address of the first byte.
    pub start: u64,
    /// Length in bytes; 0 if nothing is stored there.
    pub bytes: u64,
}

impl Span {
    /// Returns the number of sectors that the span touches.
    pub fn sectors(self) -> u64 {
        let sector = SECTOR_BYTES as u64;
        match self.bytes {
            0 => 0,
            bytes => (self.start + bytes - 1) / sector - self.start / sector + 1,
        }
    }
}

/// Location of a nibble in the metadata region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NibbleLocation {
    /// Byte offset in the metadata region.
    pub byte: u64,
    /// 0 for the low four bits (even entries), 4 for the high four bits.
    pub shift: u32,
}

/// The storage reserved for one entry, independent of its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Location {
    /// Device part.
    pub device: Span,
    /// Buddy slot, as an offset from the GBBR.
    pub buddy: Span,
    /// Metadata nibble.
    pub nibble: NibbleLocation,
}

impl Extent {
    /// Returns the location of entry `entry`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] past the last entry.
    #[inline]
    pub fn locate(&self, entry: u64) -> Result<Location, Error> {
        if entry >= self.entries {
            return Err(Error::OutOfRange { entry, entries: self.entries });
        }
        let device_bytes = self.target.device_bytes() as u64;
        let buddy_bytes = self.target.buddy_bytes() as u64;
        let nibble = self.nibble_base + entry;
        Ok(Location {
            device: Span { start: self.device_base + entry * device_bytes, bytes: device_bytes },
            buddy: Span { start: self.buddy_base + entry * buddy_bytes, bytes: buddy_bytes },
            nibble: NibbleLocation { byte: nibble / 2, shift: (nibble % 2) as u32 * 4 },
        })
    }

    /// Returns the device bytes of the whole extent.
    pub fn device_bytes(&self) -> u64 {
        self.entries * self.target.device_bytes() as u64
    }

    /// Returns the buddy bytes of the whole extent.
    pub fn buddy_bytes(&self) -> u64 {
        self.entries * self.target.buddy_bytes() as u64
    }
}

impl Location {
    /// Returns the device and buddy bytes in use for an entry of `class`, each from the start of
    /// its reserved span.
    #[inline]
    pub fn used(&self, target: Target, class: SizeClass) -> (Span, Span) {
        let (device, buddy) = target.split(class);
        (Span { bytes: device as u64, ..self.device }, Span { bytes: buddy as u64, ..self.buddy })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The worked example in `docs/reference/format.md`.
    #[test]
    fn entry_5_of_a_2x_allocation() {
        let extent = Extent {
            target: Target::X2,
            entries: 64,
            device_base: 0x10000,
            buddy_base: 0x4000,
            nibble_base: 128,
        };
        let place = extent.locate(5).unwrap();
        assert_eq!(place.device, Span { start: 0x10140, bytes: 64 });
        assert_eq!(place.buddy, Span { start: 0x4140, bytes: 64 });
        assert_eq!(place.nibble, NibbleLocation { byte: 66, shift: 4 });
        let (device, buddy) = place.used(Target::X2, SizeClass::S3);
        assert_eq!((device.bytes, buddy.bytes), (64, 32));
    }

    #[test]
    fn an_entry_past_the_end_is_an_error() {
        let extent = Extent { target: Target::X4, entries: 3, device_base: 0, buddy_base: 0, nibble_base: 0 };
        assert!(extent.locate(2).is_ok());
        assert_eq!(extent.locate(3), Err(Error::OutOfRange { entry: 3, entries: 3 }));
    }

    #[test]
    fn a_span_counts_the_sectors_it_touches() {
        let sectors = |start, bytes| Span { start, bytes }.sectors();
        assert_eq!(
            [sectors(0, 0), sectors(0, 32), sectors(8, 24), sectors(24, 16), sectors(31, 34)],
            [0, 1, 1, 2, 3]
        );
    }

    proptest! {
        #[test]
            fn neighbours_are_adjacent_and_never_overlap(
            target in proptest::sample::select(Target::ALL.to_vec()),
            entry in 0u64..1 << 40,
        ) {
            let extent = Extent { target, entries: 1 << 41, device_base: 4096, buddy_base: 8192, nibble_base: 64 };
            let (here, next) = (extent.locate(entry).unwrap(), extent.locate(entry + 1).unwrap());
            prop_assert_eq!(here.device.start + here.device.bytes, next.device.start);
            prop_assert_eq!(here.buddy.start + here.buddy.bytes, next.buddy.start);
            let bit = |p: Location| p.nibble.byte * 8 + u64::from(p.nibble.shift);
            prop_assert_eq!(bit(here) + 4, bit(next));
        }
    }
}
