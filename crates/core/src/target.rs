//! The target ratio of an allocation: how many bytes of each entry lie in device memory.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{ENTRY_BYTES, Error, SizeClass};

/// A target compression ratio. The device part of an entry is fixed by it; what does not fit there goes to the
/// entry's own slot in buddy memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Target {
    /// No ratio: the page table says that the entries lie on the device as they are. They have no metadata, so an access
    /// looks none up; and no entry is ever smaller than four sectors, as one at 1x may be.
    #[serde(rename = "uncompressed")]
    Uncompressed,
    /// Nothing is saved: four sectors on the device.
    #[serde(rename = "1x")]
    X1,
    /// Three sectors on the device.
    #[serde(rename = "4/3x")]
    X4Over3,
    /// Two sectors on the device.
    #[serde(rename = "2x")]
    X2,
    /// One sector on the device.
    #[serde(rename = "4x")]
    X4,
    /// 8 bytes, for allocations that are mostly zero.
    #[serde(rename = "16x")]
    X16,
}

impl Target {
    /// Every ratio, the most device memory first: the number of a ratio in a page-table entry is its place here.
    pub const ALL: [Self; 5] = [Self::X1, Self::X4Over3, Self::X2, Self::X4, Self::X16];

    /// Device bytes of each entry.
    #[inline]
    pub const fn device_bytes(self) -> usize {
        const BYTES: [usize; 6] = [128, 128, 96, 64, 32, 8];
        BYTES[self as usize]
    }

    /// Bytes of each entry's fixed slot in buddy memory.
    ///
    /// For 16x it is the whole entry: 120 bytes would leave every slot across sector borders, so an entry that
    /// overflows 8 bytes lies in the slot from its first byte (`docs/explain/deviations.md`).
    #[inline]
    pub const fn buddy_bytes(self) -> usize {
        match self {
            Self::X16 => ENTRY_BYTES,
            _ => ENTRY_BYTES - self.device_bytes(),
        }
    }

    /// The ratio: bytes of data for each byte of device memory.
    pub fn ratio(self) -> f64 {
        ENTRY_BYTES as f64 / self.device_bytes() as f64
    }

    /// Whether entries are compressed, and have the metadata that says how.
    #[inline]
    pub const fn compresses(self) -> bool {
        !matches!(self, Self::Uncompressed)
    }

    /// Whether an entry of this class lies in device memory alone.
    #[inline]
    pub const fn holds(self, class: SizeClass) -> bool {
        match class {
            SizeClass::Zero | SizeClass::B8 => true,
            SizeClass::S1 => self.device_bytes() >= 32,
            SizeClass::S2 => self.device_bytes() >= 64,
            SizeClass::S3 => self.device_bytes() >= 96,
            SizeClass::Raw => self.device_bytes() >= 128,
        }
    }

    /// Of the bytes of an entry of this class, how many lie on the device and how many in the buddy slot.
    #[inline]
    pub fn split(self, class: SizeClass) -> (usize, usize) {
        let bytes = class.bytes();
        match self {
            Self::Uncompressed => (ENTRY_BYTES, 0),
            Self::X16 if bytes > 8 => (0, bytes),
            _ => (bytes.min(self.device_bytes()), bytes.saturating_sub(self.device_bytes())),
        }
    }

    /// The name in tables, files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uncompressed => "uncompressed",
            Self::X1 => "1x",
            Self::X4Over3 => "4/3x",
            Self::X2 => "2x",
            Self::X4 => "4x",
            Self::X16 => "16x",
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Target {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL
            .into_iter()
            .chain([Self::Uncompressed])
            .find(|target| target.name() == text)
            .ok_or_else(|| Error::Target(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        for target in Target::ALL.into_iter().chain([Target::Uncompressed]) {
            assert_eq!(target.name().parse(), Ok(target));
            assert_eq!(serde_json::to_value(target).unwrap(), target.name());
        }
        assert_eq!("3x".parse::<Target>(), Err(Error::Target("3x".to_owned())));
    }

    #[test]
    fn every_class_finds_room_and_holds_says_when_it_needs_no_buddy() {
        for target in Target::ALL {
            for class in SizeClass::ALL {
                let (device, buddy) = target.split(class);
                assert_eq!(device + buddy, class.bytes());
                assert!(device <= target.device_bytes() && buddy <= target.buddy_bytes());
                assert_eq!(target.holds(class), buddy == 0, "{target} {class}");
            }
        }
    }

    #[test]
    fn what_is_not_compressed_takes_whole_entries_of_the_device() {
        let plain = Target::Uncompressed;
        assert!(SizeClass::ALL.into_iter().all(|class| plain.split(class) == (128, 0) && plain.holds(class)));
        assert_eq!((plain.device_bytes(), plain.buddy_bytes(), plain.ratio()), (128, 0, 1.0));
        assert!(plain < Target::X1 && !plain.compresses() && Target::X1.compresses());
    }

    #[test]
    fn buddy_parts_are_whole_sectors() {
        for target in Target::ALL {
            assert_eq!(target.buddy_bytes() % crate::SECTOR_BYTES, 0);
        }
    }
}
