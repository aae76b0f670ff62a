//! How much room a compressed entry takes, and the four metadata bits that say so.

use serde::{Deserialize, Serialize};

use crate::Error;

/// What an entry occupies once compressed: nothing, 8 bytes, or whole sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SizeClass {
    /// Every byte of the entry is zero; nothing is stored.
    Zero,
    /// At most 8 bytes: what a 16x allocation keeps on the device.
    B8,
    /// Up to 32 bytes: one sector.
    S1,
    /// Up to 64 bytes: two sectors.
    S2,
    /// Up to 96 bytes: three sectors.
    S3,
    /// Four sectors, stored as the 128 bytes themselves: no stream.
    Raw,
}

impl SizeClass {
    /// Every class, smallest first; the position of a class is its index.
    pub const ALL: [Self; 6] = [Self::Zero, Self::B8, Self::S1, Self::S2, Self::S3, Self::Raw];

    /// The class of a stream of `bits`, for an entry that is not all zeros.
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

    /// Its position in [`SizeClass::ALL`].
    #[inline]
    pub fn index(self) -> usize {
        self as usize
    }

    /// Bytes that an entry of this class occupies.
    #[inline]
    pub fn bytes(self) -> usize {
        const BYTES: [usize; 6] = [0, 8, 32, 64, 96, 128];
        BYTES[self.index()]
    }

    /// Sectors that are touched to read an entry of this class from the start of a sector.
    #[inline]
    pub fn sectors(self) -> usize {
        [0, 1, 1, 2, 3, 4][self.index()]
    }

    /// The name in tables and records.
    pub fn name(self) -> &'static str {
        ["zero", "b8", "s1", "s2", "s3", "raw"][self.index()]
    }
}

impl std::fmt::Display for SizeClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Which of a codec's layouts a three-sector stream has. Most codecs have only [`Layout::A`].
///
/// A layout that fills its three sectors to the last bit has no room to name itself, so the nibble does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Layout {
    /// The codec's first or only layout.
    #[default]
    A,
    /// Its second layout, nibble bits 6.
    B,
    /// Its third layout, nibble bits 7.
    C,
}

/// The four bits of metadata that the memory keeps for every entry: its class and, for three sectors, the
/// layout. `docs/reference/format.md` has the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Nibble(u8);

impl Nibble {
    /// The nibble of a class and layout. The layout is kept for three sectors only: there alone a codec may
    /// have more than one.
    #[inline]
    pub fn new(class: SizeClass, layout: Layout) -> Self {
        match (class, layout) {
            (SizeClass::S3, Layout::B) => Self(6),
            (SizeClass::S3, Layout::C) => Self(7),
            _ => Self(class as u8),
        }
    }

    /// Reads a stored nibble.
    ///
    /// # Errors
    /// [`Error::Nibble`] for 8 to 15, which are reserved, and for more than four bits.
    #[inline]
    pub fn from_bits(bits: u8) -> Result<Self, Error> {
        if bits < 8 { Ok(Self(bits)) } else { Err(Error::Nibble(bits)) }
    }

    /// The four bits as the metadata keeps them, 0 to 7.
    #[inline]
    pub fn bits(self) -> u8 {
        self.0
    }

    /// The size class it names.
    #[inline]
    pub fn class(self) -> SizeClass {
        SizeClass::ALL.get(usize::from(self.0)).copied().unwrap_or(SizeClass::S3)
    }

    /// The layout it names.
    #[inline]
    pub fn layout(self) -> Layout {
        match self.0 {
            6 => Layout::B,
            7 => Layout::C,
            _ => Layout::A,
        }
    }
}

/// Bytes that the paper's compressibility study (its figure of ratios over time) charges for an entry: the
/// smallest of eight sizes that holds the stream, 0 for the entry of zeros.
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
    fn a_class_begins_one_bit_after_the_one_below_it_ends() {
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
    fn only_three_sectors_remember_a_layout() {
        for class in SizeClass::ALL {
            let kept = Nibble::new(class, Layout::B).layout() == Layout::B;
            assert_eq!(kept, class == SizeClass::S3);
            assert_eq!(Nibble::new(class, Layout::C).class(), class);
        }
    }

    #[test]
    fn the_eight_sizes_of_the_study() {
        let sizes =
            [(1, 8), (64, 8), (65, 16), (129, 32), (512, 64), (513, 80), (641, 96), (769, 128), (1089, 128)];
        for (bits, bytes) in sizes {
            assert_eq!(optimistic_bytes(bits, false), bytes, "{bits} bits");
        }
        assert_eq!(optimistic_bytes(10, true), 0);
    }
}
