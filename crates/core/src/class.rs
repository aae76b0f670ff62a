//! The size class of a compressed entry and the four metadata bits that encode it.

use serde::{Deserialize, Serialize};

use crate::Error;

/// Stored size of a compressed entry: nothing, 8 bytes, or whole sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SizeClass {
    /// Every byte of the entry is zero; nothing is stored.
    Zero,
    /// At most 8 bytes: the device part of an entry at 16x.
    B8,
    /// Up to 32 bytes: one sector.
    S1,
    /// Up to 64 bytes: two sectors.
    S2,
    /// Up to 96 bytes: three sectors.
    S3,
    /// Four sectors: the 128 bytes stored uncompressed.
    Raw,
}

impl SizeClass {
    /// Every class, smallest first, in the order of [`Self::index`].
    pub const ALL: [Self; 6] = [Self::Zero, Self::B8, Self::S1, Self::S2, Self::S3, Self::Raw];

    /// Returns the class of a stream of `bits`, for an entry that is not all zeros.
    #[inline]
    pub fn from_bits(bits: u32) -> Self {
        match bits {
            0..=64 => Self::B8,
            65..=256 => Self::S1,
            257..=512 => Self::S2,
            513..=768 => Self::S3,
            _ => Self::Raw,
        }
    }

    /// Returns the position in [`SizeClass::ALL`].
    #[inline]
    pub fn index(self) -> usize {
        self as usize
    }

    /// Returns the bytes that an entry of this class occupies.
    #[inline]
    pub fn bytes(self) -> usize {
        const BYTES: [usize; 6] = [0, 8, 32, 64, 96, 128];
        BYTES[self.index()]
    }

    /// Returns the sectors read for an entry of this class stored from a sector boundary.
    #[inline]
    pub fn sectors(self) -> usize {
        [0, 1, 1, 2, 3, 4][self.index()]
    }

    /// Returns the name used in tables and records.
    pub fn name(self) -> &'static str {
        ["zero", "b8", "s1", "s2", "s3", "raw"][self.index()]
    }
}

impl std::fmt::Display for SizeClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Layout of a three-sector stream. Most codecs have only [`Layout::A`].
///
/// The nibble holds the layout, because a layout that uses all 96 bytes has no bit left for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Layout {
    /// The codec's first or only layout.
    #[default]
    A,
    /// The second layout, nibble 6.
    B,
    /// The third layout, nibble 7.
    C,
}

/// The four metadata bits of an entry: its class and, for three sectors, the layout. See the table
/// in `docs/reference/format.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Nibble(u8);

impl Nibble {
    /// Encodes a class and layout. Only three-sector entries keep the layout.
    #[inline]
    pub fn new(class: SizeClass, layout: Layout) -> Self {
        match (class, layout) {
            (SizeClass::S3, Layout::B) => Self(6),
            (SizeClass::S3, Layout::C) => Self(7),
            _ => Self(class as u8),
        }
    }

    /// Decodes a stored nibble.
    ///
    /// # Errors
    /// [`Error::Nibble`] for values from 8, which are reserved.
    #[inline]
    pub fn from_bits(bits: u8) -> Result<Self, Error> {
        if bits < 8 { Ok(Self(bits)) } else { Err(Error::Nibble(bits)) }
    }

    /// Returns the stored bits, 0 to 7.
    #[inline]
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Returns the size class.
    #[inline]
    pub fn class(self) -> SizeClass {
        SizeClass::ALL.get(usize::from(self.0)).copied().unwrap_or(SizeClass::S3)
    }

    /// Returns the layout.
    #[inline]
    pub fn layout(self) -> Layout {
        match self.0 {
            6 => Layout::B,
            7 => Layout::C,
            _ => Layout::A,
        }
    }
}

/// Returns the bytes charged for an entry in the paper's compressibility study: the smallest of
/// eight sizes that holds the stream, 0 for a zero entry.
#[inline]
pub fn optimistic_bytes(bits: u32, zero: bool) -> usize {
    const SIZES: [usize; 7] = [8, 16, 32, 64, 80, 96, 128];
    if zero {
        return 0;
    }
    let bytes = bits.div_ceil(8) as usize;
    SIZES.into_iter().find(|&size| bytes <= size).unwrap_or(128)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_begins_one_bit_after_the_previous_one_ends() {
        for class in [SizeClass::B8, SizeClass::S1, SizeClass::S2, SizeClass::S3] {
            let bits = class.bytes() as u32 * 8;
            assert_eq!(SizeClass::from_bits(bits), class);
            assert!(SizeClass::from_bits(bits + 1) > class);
        }
        assert_eq!(SizeClass::from_bits(u32::MAX), SizeClass::Raw);
    }

    #[test]
    fn every_nibble_is_a_class_or_an_error() {
        for bits in 0..=255 {
            match Nibble::from_bits(bits) {
                Ok(nibble) => {
                    assert_eq!(Nibble::new(nibble.class(), nibble.layout()), nibble);
                    assert_eq!(nibble.bits(), bits);
                }
                Err(error) => assert_eq!((bits >= 8, error), (true, Error::Nibble(bits))),
            }
        }
    }

    #[test]
    fn only_three_sector_nibbles_keep_a_layout() {
        for class in SizeClass::ALL {
            let kept = Nibble::new(class, Layout::B).layout() == Layout::B;
            assert_eq!(kept, class == SizeClass::S3);
            assert_eq!(Nibble::new(class, Layout::C).class(), class);
        }
    }

    #[test]
    fn optimistic_bytes_match_the_paper_s_eight_sizes() {
        let sizes =
            [(1, 8), (64, 8), (65, 16), (129, 32), (512, 64), (513, 80), (641, 96), (769, 128), (1089, 128)];
        for (bits, bytes) in sizes {
            assert_eq!(optimistic_bytes(bits, false), bytes, "{bits} bits");
        }
        assert_eq!(optimistic_bytes(10, true), 0);
    }
}
