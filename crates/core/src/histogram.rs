//! Entries by size class: the input to target selection.

use std::{iter::Sum, ops::AddAssign};

use serde::{Deserialize, Serialize};

use crate::{ENTRY_BYTES, PageMap, SECTOR_BYTES, SizeClass, Target, optimistic_bytes};

/// Entries of an array, an allocation or a whole run by size class, under one codec.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Histogram {
    /// Number of entries in each class, in the order of [`SizeClass::ALL`].
    pub classes: [u64; 6],
    /// Bytes of all entries under the paper's eight sizes ([`crate::optimistic_bytes`]).
    pub optimistic_bytes: u64,
}

impl Histogram {
    /// Adds one entry with its class and its bytes under the paper's eight sizes.
    #[inline]
    pub fn add(&mut self, class: SizeClass, optimistic_bytes: usize) {
        self.classes[class.index()] += 1;
        self.optimistic_bytes += optimistic_bytes as u64;
    }

    /// Returns the number of entries.
    pub fn entries(&self) -> u64 {
        self.classes.iter().sum()
    }

    /// Returns the uncompressed bytes of the entries.
    pub fn bytes(&self) -> u64 {
        self.entries() * ENTRY_BYTES as u64
    }

    /// Returns whether an array of `entries` can have this histogram: the counts add up, and the
    /// optimistic bytes are within the bounds of the classes.
    pub fn fits(&self, entries: u64) -> bool {
        let count = |class: SizeClass| u128::from(self.classes[class.index()]);
        let total: u128 = SizeClass::ALL.into_iter().map(count).sum();
        let bytes = |of: fn(SizeClass) -> usize| -> u128 {
            SizeClass::ALL.into_iter().map(|class| count(class) * of(class) as u128).sum()
        };
        let range = bytes(least_bytes)..=bytes(most_bytes);
        total == u128::from(entries) && range.contains(&u128::from(self.optimistic_bytes))
    }

    /// Returns whether `map` can show the same entries: no class exceeds its count, and a whole map
    /// matches exactly.
    pub fn allows(&self, map: &PageMap) -> bool {
        let mut shown = [0; 6];
        map.classes().iter().for_each(|class| shown[class.index()] += 1);
        if map.is_whole() {
            shown == self.classes
        } else {
            shown.iter().zip(self.classes).all(|(a, b)| *a <= b)
        }
    }

    /// Returns the number of entries that overflow at `target`.
    pub fn overflowing(&self, target: Target) -> u64 {
        let over = SizeClass::ALL.into_iter().filter(|&class| !target.holds(class));
        over.map(|class| self.classes[class.index()]).sum()
    }

    /// Returns the share of entries that overflow at `target`; 0 without entries.
    pub fn overflow_share(&self, target: Target) -> f64 {
        self.overflowing(target) as f64 / self.entries().max(1) as f64
    }

    /// Returns the bytes of all entries rounded up to their class.
    pub fn stored_bytes(&self) -> u64 {
        SizeClass::ALL.into_iter().map(|class| self.classes[class.index()] * class.bytes() as u64).sum()
    }

    /// Returns the share of all-zero entries; 0 without entries.
    pub fn zero_share(&self) -> f64 {
        self.classes[SizeClass::Zero.index()] as f64 / self.entries().max(1) as f64
    }

    /// Returns the device and buddy sectors moved by one access to every entry at `target`.
    pub fn sectors(&self, target: Target) -> (u64, u64) {
        let sectors = |bytes: usize| bytes.div_ceil(SECTOR_BYTES) as u64;
        SizeClass::ALL.into_iter().zip(self.classes).fold((0, 0), |(device, buddy), (class, count)| {
            let (on_device, in_slot) = target.split(class);
            (device + count * sectors(on_device), buddy + count * sectors(in_slot))
        })
    }

    /// Returns the compression ratio of the paper's study: eight sizes, chosen per entry. `None` if
    /// every entry is zero.
    pub fn optimistic_ratio(&self) -> Option<f64> {
        (self.optimistic_bytes > 0).then(|| self.bytes() as f64 / self.optimistic_bytes as f64)
    }
}

/// Returns the largest of the eight sizes that an entry of this class can take.
fn most_bytes(class: SizeClass) -> usize {
    optimistic_bytes(class.bytes() as u32 * 8, class == SizeClass::Zero)
}

/// Returns the smallest of the eight sizes that an entry of this class can take.
fn least_bytes(class: SizeClass) -> usize {
    let below = class.index().checked_sub(1).map_or(0, |below| SizeClass::ALL[below].bytes());
    optimistic_bytes(below as u32 * 8 + 1, class == SizeClass::Zero)
}

impl AddAssign for Histogram {
    fn add_assign(&mut self, other: Self) {
        for (count, more) in self.classes.iter_mut().zip(other.classes) {
            *count += more;
        }
        self.optimistic_bytes += other.optimistic_bytes;
    }
}

impl Sum for Histogram {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), |mut total, part| {
            total += part;
            total
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_larger_than_the_target_overflow() {
        let all = Histogram { classes: [10, 20, 30, 40, 50, 100], optimistic_bytes: 0 };
        assert_eq!(all.entries(), 250);
        let over = Target::ALL.map(|target| all.overflowing(target));
        assert_eq!(over, [0, 100, 150, 190, 220]);
        assert_eq!(all.overflow_share(Target::X2), 0.6);
        assert_eq!(Histogram::default().overflow_share(Target::X16), 0.0);
    }

    #[test]
    fn sectors_follow_the_split_of_each_class() {
        let one_of_each = Histogram { classes: [1; 6], optimistic_bytes: 0 };
        assert_eq!(one_of_each.sectors(Target::X1), (1 + 1 + 2 + 3 + 4, 0));
        assert_eq!(one_of_each.sectors(Target::X2), (1 + 1 + 2 + 2 + 2, 1 + 2));
        assert_eq!(one_of_each.sectors(Target::X16), (1, 1 + 2 + 3 + 4));
        assert_eq!((one_of_each.stored_bytes(), one_of_each.zero_share()), (328, 1.0 / 6.0));
    }

    #[test]
    fn impossible_counts_do_not_fit() {
        let bounds = SizeClass::ALL.map(|class| (least_bytes(class), most_bytes(class)));
        assert_eq!(bounds, [(0, 0), (8, 8), (16, 32), (64, 64), (80, 96), (128, 128)]);
        let sizes = |optimistic_bytes| Histogram { classes: [1, 1, 1, 1, 1, 1], optimistic_bytes };
        assert!(sizes(8 + 16 + 64 + 80 + 128).fits(6) && sizes(8 + 32 + 64 + 96 + 128).fits(6));
        assert!(!sizes(8 + 15 + 64 + 80 + 128).fits(6) && !sizes(8 + 32 + 64 + 97 + 128).fits(6));
        assert!(!sizes(8 + 16 + 64 + 80 + 128).fits(5));
        assert!(!Histogram { classes: [u64::MAX; 6], optimistic_bytes: 0 }.fits(u64::MAX - 5));
    }

    #[test]
    fn a_map_with_other_classes_is_not_allowed() {
        let sizes = Histogram { classes: [65, 0, 0, 0, 0, 1], optimistic_bytes: 128 };
        let rows = |last| [vec![SizeClass::Zero; 64], vec![SizeClass::Zero, last]];
        assert!(sizes.allows(&PageMap::new(2, rows(SizeClass::Raw))));
        assert!(!sizes.allows(&PageMap::new(2, rows(SizeClass::Zero))));
        assert!(sizes.allows(&PageMap::new(2, &rows(SizeClass::Raw)[..1])));
        assert!(!sizes.allows(&PageMap::new(2, [[SizeClass::Raw; 64]])));
    }

    #[test]
    fn histograms_add_up() {
        let mut one = Histogram::default();
        one.add(SizeClass::S1, 16);
        one.add(SizeClass::Zero, 0);
        let both: Histogram = [one, one].into_iter().sum();
        assert_eq!(both, Histogram { classes: [2, 0, 2, 0, 0, 0], optimistic_bytes: 32 });
        assert_eq!(both.optimistic_ratio(), Some(16.0));
        assert_eq!(Histogram::default().optimistic_ratio(), None);
    }
}
