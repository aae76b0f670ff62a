//! What the simulator knows of data: for each allocation its target and the size class of every entry.
//!
//! The map is an input. It comes from a profile, from a workload's snapshot or from a test; no codec is called.

use std::{ops::Range, sync::Arc};

use buddy_core::{ENTRY_BYTES, Extent, SizeClass, Target};
use buddy_trace::pattern::scramble;

use crate::Error;

/// The size classes of an allocation's entries.
#[derive(Debug, Clone, PartialEq)]
pub enum Classes {
    /// Every entry the same.
    Uniform(SizeClass),
    /// One for each entry from `first` on, shared with whoever saw them; entries past the end are raw.
    Each {
        /// The classes of a whole allocation.
        classes: Arc<[SizeClass]>,
        /// Where in them this allocation begins.
        first: usize,
    },
    /// Drawn for each entry, always the same for the same entry and seed: the share of each class, in the
    /// order of [`SizeClass::ALL`].
    Shares {
        /// The shares; what is missing to 1 is raw.
        shares: [f64; 6],
        /// Another seed gives the same shares to other entries.
        seed: u64,
    },
}

impl Classes {
    /// One class for each entry.
    pub fn each(classes: impl Into<Arc<[SizeClass]>>) -> Self {
        Self::Each { classes: classes.into(), first: 0 }
    }

    /// The class of an entry.
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

    /// The classes of some of the entries. Of shares it is another draw, since entries are counted anew.
    pub(crate) fn part(&self, entries: Range<u64>) -> Self {
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

/// Where an allocation lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// In device memory, uncompressed: its page table entries say so, and it has no metadata.
    Device,
    /// In device memory and, where an entry needs more than the target gives it, in buddy memory.
    Compressed(Target),
    /// In host memory, read over the link in every mode.
    Host,
}

impl From<Target> for Home {
    fn from(target: Target) -> Self {
        if target.compresses() { Self::Compressed(target) } else { Self::Device }
    }
}

/// A range of addresses with one home, and how each of its entries compresses.
#[derive(Debug, Clone, PartialEq)]
pub struct Allocation {
    /// Its first address, a multiple of 128.
    pub base: u64,
    /// Its length; the last entry may be partly used.
    pub bytes: u64,
    /// Device memory, compressed with a target, or host memory.
    pub home: Home,
    /// The classes of its entries.
    pub classes: Classes,
}

impl Allocation {
    fn entries(&self) -> u64 {
        self.bytes.div_ceil(ENTRY_BYTES as u64)
    }
}

/// The most bytes of all allocations together: more than a GPU's memory, and few enough to count entry by entry.
const MOST_BYTES: u64 = 1 << 40;

/// The allocations of a program. Addresses outside all of them are plain device memory.
#[derive(Debug, Clone, Default)]
pub struct ClassMap {
    /// By their first line.
    allocations: Vec<(u64, Allocation, Extent)>,
    /// Which of them any line was found in.
    touched: Vec<bool>,
    /// Where the last line was found: the next is most often there too.
    last: usize,
}

/// What the map says of a line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) home: Home,
    pub(crate) class: SizeClass,
    pub(crate) entry: u64,
    pub(crate) extent: Extent,
}

impl ClassMap {
    /// Puts the allocations into the map and gives each its places in device and buddy memory.
    ///
    /// # Errors
    /// [`Error::Allocation`] if one is not aligned to an entry, is empty, wraps around or overlaps another;
    /// [`Error::TooLarge`] if all together are larger than any memory.
    pub fn new(mut allocations: Vec<Allocation>) -> Result<Self, Error> {
        allocations.sort_by_key(|allocation| allocation.base);
        let bytes = allocations.iter().fold(0, |sum: u64, allocation| sum.saturating_add(allocation.bytes));
        if bytes > MOST_BYTES {
            return Err(Error::TooLarge { bytes });
        }
        let (mut device_base, mut buddy_base, mut nibble_base, mut end) = (0, 0, 0, 0);
        let mut placed = Vec::with_capacity(allocations.len());
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
            // Each begins at a page of its own, as the page table has it.
            device_base += extent.device_bytes().next_multiple_of(8192);
            buddy_base += extent.buddy_bytes().next_multiple_of(8192);
            nibble_base += entries.next_multiple_of(64);
            end = base + bytes;
            placed.push((base / ENTRY_BYTES as u64, allocation, extent));
        }
        let touched = vec![false; placed.len()];
        Ok(Self { allocations: placed, touched, last: usize::MAX })
    }

    /// What is known of a line.
    #[inline]
    pub(crate) fn find(&mut self, line: u64) -> Option<Found> {
        let holds = |map: &Self, index: usize| {
            map.allocations
                .get(index)
                .is_some_and(|(first, _, extent)| line.wrapping_sub(*first) < extent.entries)
        };
        if !holds(self, self.last) {
            self.last = self.allocations.partition_point(|(first, ..)| *first <= line).checked_sub(1)?;
            if !holds(self, self.last) {
                return None;
            }
            self.touched[self.last] = true;
        }
        let (first, allocation, extent) = &self.allocations[self.last];
        let entry = line - first;
        Some(Found { home: allocation.home, class: allocation.classes.get(entry), entry, extent: *extent })
    }

    /// The first address and the length of each allocation that no line was found in.
    pub(crate) fn untouched(&self) -> Vec<(u64, u64)> {
        let all = self.ranges().zip(&self.touched);
        all.filter(|(_, touched)| !**touched).map(|(range, _)| range).collect()
    }

    /// Bytes of all allocations.
    pub fn footprint(&self) -> u64 {
        self.allocations.iter().map(|(_, allocation, _)| allocation.bytes).sum()
    }

    /// The first address and the length of each allocation, by address.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.allocations.iter().map(|(_, allocation, _)| (allocation.base, allocation.bytes))
    }

    /// Bytes of all allocations over the device memory that their targets give them; 1 without allocations. Host memory
    /// counts on neither side.
    pub fn capacity_ratio(&self) -> f64 {
        let on_device = || self.allocations.iter().filter(|(_, allocation, _)| allocation.home != Home::Host);
        let entries: u64 = on_device().map(|(_, _, extent)| extent.entries).sum();
        let device: u64 = on_device().map(|(_, _, extent)| extent.device_bytes()).sum();
        if device == 0 { 1.0 } else { (entries * ENTRY_BYTES as u64) as f64 / device as f64 }
    }

    /// The share of entries that need buddy memory, over all compressed allocations.
    pub fn overflow_share(&self) -> f64 {
        let (mut entries, mut over) = (0u64, 0u64);
        for (_, allocation, extent) in &self.allocations {
            if let Home::Compressed(target) = allocation.home {
                entries += extent.entries;
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
    fn more_than_any_memory_is_refused() {
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
    fn the_capacity_ratio_counts_device_memory_alone() {
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
    fn lines_find_their_allocation() {
        let mut map = ClassMap::new(vec![
            Allocation {
                home: Home::Compressed(Target::X2),
                classes: Classes::each([SizeClass::S1, SizeClass::Zero]),
                ..plain(1280, 300)
            },
            plain(0, 256),
        ])
        .unwrap();
        assert_eq!(map.find(1).map(|found| found.entry), Some(1));
        assert!(map.find(2).is_none() && map.find(13).is_none());
        assert_eq!(map.untouched(), [(1280, 300)]);
        let classes = [10, 11, 12].map(|line| map.find(line).unwrap().class);
        assert_eq!(classes, [SizeClass::S1, SizeClass::Zero, SizeClass::Raw]);
        assert_eq!(map.find(11).unwrap().extent.nibble_base, 64);
        assert_eq!((map.footprint(), map.overflow_share()), (556, 1.0 / 3.0));
    }

    #[test]
    fn what_overlaps_or_is_crooked_is_refused() {
        for bad in [plain(64, 128), plain(0, 0), plain(u64::MAX - 127, 256), plain(128, 10)] {
            assert!(ClassMap::new(vec![plain(0, 256), bad]).is_err());
        }
    }

    #[test]
    fn shares_are_met() {
        let classes = Classes::Shares { shares: [0.25, 0.0, 0.5, 0.0, 0.0, 0.25], seed: 7 };
        let count = |class| (0..100_000).filter(|&entry| classes.get(entry) == class).count();
        assert!((24_500..25_500).contains(&count(SizeClass::Zero)));
        assert!((49_500..50_500).contains(&count(SizeClass::S1)));
        assert_eq!(count(SizeClass::S2), 0);
    }
}
