//! How many entries compress to which size: what targets are chosen from.

use std::{iter::Sum, ops::AddAssign};

use serde::{Deserialize, Serialize};

use crate::{ENTRY_BYTES, SECTOR_BYTES, SizeClass, Target};

/// The entries of an array, an allocation or a whole run by size class, under one codec.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Histogram {
    /// How many entries have each class, in the order of [`SizeClass::ALL`].
    pub classes: [u64; 6],
    /// Bytes of all entries in the paper's study of eight sizes ([`crate::optimistic_bytes`]).
    pub optimistic_bytes: u64,
}

impl Histogram {
    /// Counts one entry: its class, and its bytes among the eight sizes of the paper's study.
    #[inline]
    pub fn add(&mut self, class: SizeClass, optimistic_bytes: usize) {
        self.classes[class.index()] += 1;
        self.optimistic_bytes += optimistic_bytes as u64;
    }

    /// How many entries there are.
    pub fn entries(&self) -> u64 {
        self.classes.iter().sum()
    }

    /// Bytes of the entries before compression.
    pub fn bytes(&self) -> u64 {
        self.entries() * ENTRY_BYTES as u64
    }

    /// How many entries need their buddy slot at this target.
    pub fn overflowing(&self, target: Target) -> u64 {
        let over = SizeClass::ALL.into_iter().filter(|&class| !target.holds(class));
        over.map(|class| self.classes[class.index()]).sum()
    }

    /// The share of entries that need their buddy slot at this target; 0 where there are no entries.
    pub fn overflow_share(&self, target: Target) -> f64 {
        self.overflowing(target) as f64 / self.entries().max(1) as f64
    }

    /// Bytes of the entries, each as large as its class.
    pub fn stored_bytes(&self) -> u64 {
        SizeClass::ALL.into_iter().map(|class| self.classes[class.index()] * class.bytes() as u64).sum()
    }

    /// The share of entries that are all zeros; 0 where there are no entries.
    pub fn zero_share(&self) -> f64 {
        self.classes[SizeClass::Zero.index()] as f64 / self.entries().max(1) as f64
    }

    /// Device and buddy sectors that one access to every entry moves at this target.
    pub fn sectors(&self, target: Target) -> (u64, u64) {
        let sectors = |bytes: usize| bytes.div_ceil(SECTOR_BYTES) as u64;
        SizeClass::ALL.into_iter().zip(self.classes).fold((0, 0), |(device, buddy), (class, count)| {
            let (on_device, in_slot) = target.split(class);
            (device + count * sectors(on_device), buddy + count * sectors(in_slot))
        })
    }

    /// The ratio of the paper's study: eight sizes, every entry free to have its own. `None` where all entries
    /// are zero and take nothing.
    pub fn optimistic_ratio(&self) -> Option<f64> {
        (self.optimistic_bytes > 0).then(|| self.bytes() as f64 / self.optimistic_bytes as f64)
    }
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
    fn what_a_target_does_not_hold_overflows() {
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
    fn parts_add_up() {
        let mut one = Histogram::default();
        one.add(SizeClass::S1, 16);
        one.add(SizeClass::Zero, 0);
        let both: Histogram = [one, one].into_iter().sum();
        assert_eq!(both, Histogram { classes: [2, 0, 2, 0, 0, 0], optimistic_bytes: 32 });
        assert_eq!(both.optimistic_ratio(), Some(16.0));
        assert_eq!(Histogram::default().optimistic_ratio(), None);
    }
}
