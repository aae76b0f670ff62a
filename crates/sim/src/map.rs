//! The class map: each allocation's target and the size class of every entry.
//!
//! The map is an input, from a profile, a workload's snapshot or a test; no codec is called.

use std::{ops::Range, sync::Arc};

use buddy_core::{ENTRY_BYTES, Extent, SizeClass, Target};
use buddy_trace::pattern::scramble;

use crate::Error;

/// The size classes of an allocation's entries.
#[derive(Debug, Clone, PartialEq)]
pub enum Classes {
    /// The same class for every entry.
    Uniform(SizeClass),
    /// One class per entry from `first` on; entries past the end are raw.
    Each {
        /// Classes of a whole allocation.
        classes: Arc<[SizeClass]>,
        /// Index of this allocation's first entry in `classes`.
        first: usize,
    },
    /// Drawn at random per entry, a fixed function of entry and seed.
    Shares {
        /// Probability of each class, in the order of [`SizeClass::ALL`]; the remainder to 1 is
        /// raw.
        shares: [f64; 6],
        /// Seed of the draw.
        seed: u64,
    },
}

impl Classes {
    /// Creates classes listed per entry.
    pub fn each(classes: impl Into<Arc<[SizeClass]>>) -> Self {
        Self::Each { classes: classes.into(), first: 0 }
    }

    /// Returns the class of an entry.
    #[inline]
    pub fn get(&self, entry: u64) -> SizeClass {
        match self {
            Self::Uniform(class) => *class,
            Self::Each { classes, first } => {
                classes.get(first + entry as usize).copied().unwrap_or(SizeClass::Raw)
            }
            Self::Shares { shares, seed } => {
                let draw = (scramble(entry ^ seed.rotate_left(32)) >> 11) as f64 / (1u64 << 53) as f64;
                let mut sum = 0.0;
                let below = |share: &f64| {
                    sum += share;
                    draw < sum
                };
                SizeClass::ALL[shares.iter().position(below).unwrap_or(5)]
            }
        }
    }

    /// Returns the classes of a range of entries. `Shares` are drawn anew, since entries are
    /// renumbered.
    pub(crate) fn slice(&self, entries: Range<u64>) -> Self {
        match self {
            Self::Uniform(class) => Self::Uniform(*class),
            Self::Each { classes, first } => {
                Self::Each { classes: classes.clone(), first: first + entries.start as usize }
            }
            Self::Shares { shares, seed } => {
                Self::Shares { shares: *shares, seed: seed.wrapping_add(entries.start) }
            }
        }
    }
}

/// Memory that holds an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// Device memory, uncompressed and without metadata, as marked in its page table entries.
    Device,
    /// Device memory, with the overflow of entries larger than the target in buddy memory.
    Compressed(Target),
    /// Host memory, accessed over the link in every mode.
    Host,
}

impl From<Target> for Home {
    fn from(target: Target) -> Self {
        if target.compresses() { Self::Compressed(target) } else { Self::Device }
    }
}

/// An address range in one memory, with the size class of each entry.
#[derive(Debug, Clone, PartialEq)]
pub struct Allocation {
    /// Base address, a multiple of 128.
    pub base: u64,
    /// Length; the last entry may be partly used.
    pub bytes: u64,
    /// Memory that holds it.
    pub home: Home,
    /// Size classes of its entries.
    pub classes: Classes,
}

impl Allocation {
    fn entries(&self) -> u64 {
        self.bytes.div_ceil(ENTRY_BYTES as u64)
    }
}

/// Limit on the bytes of all allocations: more than any GPU's memory, few enough to iterate over
/// entries.
const MAX_BYTES: u64 = 1 << 40;

/// The allocations of a program. Addresses outside all of them are uncompressed device memory.
#[derive(Debug, Clone, Default)]
pub struct ClassMap {
    /// Sorted by first line.
    allocations: Vec<(u64, Allocation, Extent)>,
    /// True for allocations with a looked-up line.
    touched: Vec<bool>,
    /// Index of the last hit, tried first by the next lookup.
    last: usize,
}

/// A line's entry in the map.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MappedEntry {
    pub(crate) home: Home,
    pub(crate) class: SizeClass,
    pub(crate) entry: u64,
    pub(crate) extent: Extent,
}

impl ClassMap {
    /// Builds the map and assigns each allocation its extent in device and buddy memory.
    ///
    /// # Errors
    /// [`Error::Allocation`] if one is not aligned to an entry, is empty, wraps around or overlaps
    /// another; [`Error::TooLarge`] if the total exceeds 1 TiB.
    pub fn new(mut allocations: Vec<Allocation>) -> Result<Self, Error> {
        allocations.sort_by_key(|allocation| allocation.base);
        let bytes = allocations.iter().fold(0, |sum: u64, allocation| sum.saturating_add(allocation.bytes));
        if bytes > MAX_BYTES {
            return Err(Error::TooLarge { bytes });
        }
        let (mut device_base, mut buddy_base, mut nibble_base, mut end) = (0, 0, 0, 0);
        let mut mapped = Vec::with_capacity(allocations.len());
        for allocation in allocations {
            let Allocation { base, bytes, home, .. } = allocation;
            let fits =
                base.is_multiple_of(ENTRY_BYTES as u64) && bytes > 0 && base.checked_add(bytes).is_some();
            if !fits || base < end {
                return Err(Error::Allocation { base, bytes });
            }
            let target = if let Home::Compressed(target) = home { target } else { Target::X1 };
            let entries = allocation.entries();
            let extent = Extent { target, entries, device_base, buddy_base, nibble_base };
            // Each begins on a page of its own, as in the page table.
            device_base += extent.device_bytes().next_multiple_of(8192);
            buddy_base += extent.buddy_bytes().next_multiple_of(8192);
            nibble_base += entries.next_multiple_of(64);
            end = base + bytes;
            mapped.push((base / ENTRY_BYTES as u64, allocation, extent));
        }
        let touched = vec![false; mapped.len()];
        Ok(Self { allocations: mapped, touched, last: usize::MAX })
    }

    /// Looks up the entry of a line.
    #[inline]
    pub(crate) fn find(&mut self, line: u64) -> Option<MappedEntry> {
        let contains = |map: &Self, index: usize| {
            map.allocations
                .get(index)
                .is_some_and(|(first, _, extent)| line.wrapping_sub(*first) < extent.entries)
        };
        if !contains(self, self.last) {
            self.last = self.allocations.partition_point(|(first, ..)| *first <= line).checked_sub(1)?;
            if !contains(self, self.last) {
                return None;
            }
            self.touched[self.last] = true;
        }
        let (first, allocation, extent) = &self.allocations[self.last];
        let entry = line - first;
        Some(MappedEntry {
            home: allocation.home,
            class: allocation.classes.get(entry),
            entry,
            extent: *extent,
        })
    }

    /// Returns the base and length of each allocation without a lookup.
    pub(crate) fn untouched(&self) -> Vec<(u64, u64)> {
        let all = self.ranges().zip(&self.touched);
        all.filter(|(_, touched)| !**touched).map(|(range, _)| range).collect()
    }

    /// Returns whether an allocation is in host memory.
    pub(crate) fn uses_host(&self) -> bool {
        self.allocations.iter().any(|(_, allocation, _)| allocation.home == Home::Host)
    }

    /// Returns the bytes of all allocations.
    pub fn footprint(&self) -> u64 {
        self.allocations.iter().map(|(_, allocation, _)| allocation.bytes).sum()
    }

    /// Returns the base and length of each allocation, sorted by address.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.allocations.iter().map(|(_, allocation, _)| (allocation.base, allocation.bytes))
    }

    /// Returns the bytes of all allocations over the device memory that their targets allot; 1
    /// without allocations. Host memory is excluded from both.
    pub fn capacity_ratio(&self) -> f64 {
        let on_device = || self.allocations.iter().filter(|(_, allocation, _)| allocation.home != Home::Host);
        let entries: u64 = on_device().map(|(_, _, extent)| extent.entries).sum();
        let device: u64 = on_device().map(|(_, _, extent)| extent.device_bytes()).sum();
        if device == 0 { 1.0 } else { (entries * ENTRY_BYTES as u64) as f64 / device as f64 }
    }

    /// Returns the share of all entries that need buddy memory, as a profile counts it.
    pub fn overflow_share(&self) -> f64 {
        let (mut entries, mut over) = (0u64, 0u64);
        for (_, allocation, extent) in &self.allocations {
            entries += extent.entries;
            if let Home::Compressed(target) = allocation.home {
                over += match allocation.classes {
                    Classes::Uniform(class) => {
                        if target.holds(class) {
                            0
                        } else {
                            extent.entries
                        }
                    }
                    _ => {
                        let is_over = |entry: &u64| !target.holds(allocation.classes.get(*entry));
                        (0..extent.entries).filter(is_over).count() as u64
                    }
                };
            }
        }
        if entries == 0 { 0.0 } else { over as f64 / entries as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(base: u64, bytes: u64) -> Allocation {
        Allocation { base, bytes, home: Home::Device, classes: Classes::Uniform(SizeClass::Raw) }
    }

    #[test]
    fn more_than_one_tebibyte_is_refused() {
        let error = |bytes| ClassMap::new(vec![plain(0, 128), plain(128, bytes)]).unwrap_err().to_string();
        assert!(error(1 << 50).contains("can be simulated") && error(u64::MAX - 200).contains("1 TiB"));
        let half = Allocation { home: Home::Compressed(Target::X2), ..plain(0, 1 << 40) };
        assert_eq!(
            ClassMap::new(vec![half]).unwrap().overflow_share(),
            1.0,
            "without a walk over its entries"
        );
    }

    #[test]
    fn the_capacity_ratio_excludes_host_memory() {
        let at = |base, home| Allocation { home, ..plain(base, 1 << 20) };
        let map = |homes: &[Home]| {
            let all = homes.iter().enumerate().map(|(i, home)| at((i as u64) << 20, *home));
            ClassMap::new(all.collect()).unwrap()
        };
        assert_eq!(map(&[Home::Compressed(Target::X2), Home::Device]).capacity_ratio(), 2.0 / 1.5);
        assert_eq!(map(&[Home::Compressed(Target::X4), Home::Host]).capacity_ratio(), 4.0);
        assert_eq!(ClassMap::default().capacity_ratio(), 1.0);
    }

    #[test]
    fn lookup_returns_the_allocation_of_a_line() {
        let mut map = ClassMap::new(vec![
            Allocation {
                home: Home::Compressed(Target::X2),
                classes: Classes::each([SizeClass::S1, SizeClass::Zero]),
                ..plain(1280, 300)
            },
            plain(0, 256),
        ])
        .unwrap();
        assert_eq!(map.find(1).map(|mapped| mapped.entry), Some(1));
        assert!(map.find(2).is_none() && map.find(13).is_none());
        assert_eq!(map.untouched(), [(1280, 300)]);
        let classes = [10, 11, 12].map(|line| map.find(line).unwrap().class);
        assert_eq!(classes, [SizeClass::S1, SizeClass::Zero, SizeClass::Raw]);
        assert_eq!(map.find(11).unwrap().extent.nibble_base, 64);
        assert_eq!((map.footprint(), map.overflow_share()), (556, 1.0 / 5.0));
    }

    #[test]
    fn overlapping_or_misaligned_allocations_are_refused() {
        for bad in [plain(64, 128), plain(0, 0), plain(u64::MAX - 127, 256), plain(128, 10)] {
            assert!(ClassMap::new(vec![plain(0, 256), bad]).is_err());
        }
    }

    #[test]
    fn drawn_classes_have_the_given_shares() {
        let classes = Classes::Shares { shares: [0.25, 0.0, 0.5, 0.0, 0.0, 0.25], seed: 7 };
        let count = |class| (0..100_000).filter(|&entry| classes.get(entry) == class).count();
        assert!((24_500..25_500).contains(&count(SizeClass::Zero)));
        assert!((49_500..50_500).contains(&count(SizeClass::S1)));
        assert_eq!(count(SizeClass::S2), 0);
    }
}
