//! The target ratio of an allocation, which fixes the bytes of each entry in device memory.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{ENTRY_BYTES, Error, SizeClass};

/// A target compression ratio. It fixes the device part of an entry; the rest overflows to the
/// entry's slot in buddy memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Target {
    /// Not compressed: entries are stored unchanged, without metadata. Every access moves four
    /// sectors; at 1x it may be fewer.
    #[serde(rename = "uncompressed")]
    Uncompressed,
    /// Four sectors on the device: compressed, but without saving memory.
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
    /// 8 bytes on the device, for allocations that are mostly zero.
    #[serde(rename = "16x")]
    X16,
}

impl Target {
    /// Every ratio, most device memory first, in the order of their page-table codes.
    pub const ALL: [Self; 5] = [Self::X1, Self::X4Over3, Self::X2, Self::X4, Self::X16];

    /// Returns the device bytes per entry.
    #[inline]
    pub const fn device_bytes(self) -> usize {
        const BYTES: [usize; 6] = [128, 128, 96, 64, 32, 8];
        BYTES[self as usize]
    }

    /// Returns the bytes of each entry's slot in buddy memory.
    ///
    /// At 16x the slot holds a whole entry, so that slots stay sector-aligned. An entry over 8
    /// bytes is stored in the slot alone (`docs/explain/deviations.md`).
    #[inline]
    pub const fn buddy_bytes(self) -> usize {
        match self {
            Self::X16 => ENTRY_BYTES,
            _ => ENTRY_BYTES - self.device_bytes(),
        }
    }

    /// Returns the ratio of uncompressed to device bytes.
    pub fn ratio(self) -> f64 {
        ENTRY_BYTES as f64 / self.device_bytes() as f64
    }

    /// Returns whether entries are compressed and have metadata.
    #[inline]
    pub const fn compresses(self) -> bool {
        !matches!(self, Self::Uncompressed)
    }

    /// Returns whether an entry of this class fits in device memory alone.
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

    /// Returns the device and buddy bytes of an entry of this class.
    #[inline]
    pub fn split(self, class: SizeClass) -> (usize, usize) {
        let bytes = class.bytes();
        match self {
            Self::Uncompressed => (ENTRY_BYTES, 0),
            Self::X16 if bytes > 8 => (0, bytes),
            _ => (bytes.min(self.device_bytes()), bytes.saturating_sub(self.device_bytes())),
        }
    }

    /// Returns the name used in tables, files and on the command line.
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
    fn target_names_round_trip() {
        for target in Target::ALL.into_iter().chain([Target::Uncompressed]) {
            assert_eq!(target.name().parse(), Ok(target));
            assert_eq!(serde_json::to_value(target).unwrap(), target.name());
        }
        assert_eq!("3x".parse::<Target>(), Err(Error::Target("3x".to_owned())));
    }

    #[test]
    fn split_stores_every_class_and_holds_means_no_buddy_bytes() {
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
    fn uncompressed_entries_take_whole_entries_on_the_device() {
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
