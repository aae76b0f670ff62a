//! Traffic counters: sectors by memory and direction, and metadata-cache results.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use buddy_core::{SECTOR_BYTES, SizeClass, Span, Target};
use serde::{Deserialize, Serialize};

use crate::{CacheSpec, Outcome};

/// Number of entries per class, in the order of [`SizeClass::ALL`].
pub(crate) type Classes = [u64; 6];

/// Traffic between the processor and the memories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Traffic {
    /// Entries read, including read-modify-writes.
    pub entries_read: u64,
    /// Entries written, in whole or in part.
    pub entries_written: u64,
    /// Sectors read from device memory, excluding metadata.
    pub device_sectors_read: u64,
    /// Sectors written to device memory, excluding metadata.
    pub device_sectors_written: u64,
    /// Sectors read from the carve-out.
    pub buddy_sectors_read: u64,
    /// Sectors written to the carve-out.
    pub buddy_sectors_written: u64,
    /// Metadata accesses that hit the cache.
    pub metadata_hits: u64,
    /// Metadata accesses that missed.
    pub metadata_misses: u64,
    /// Device sectors of metadata: lines fetched and dirty lines written back.
    pub metadata_sectors: u64,
    /// Device sectors that the same accesses move without compression.
    pub uncompressed_sectors: u64,
}

const FIELDS: usize = 10;

impl Traffic {
    /// Returns the device sectors moved, including metadata.
    pub fn device_sectors(&self) -> u64 {
        self.device_sectors_read + self.device_sectors_written + self.metadata_sectors
    }

    /// Returns the sectors moved over the link to the carve-out.
    pub fn buddy_sectors(&self) -> u64 {
        self.buddy_sectors_read + self.buddy_sectors_written
    }

    /// Returns the share of device traffic saved by compression, metadata included; negative if it
    /// cost more. `None` before the first access.
    pub fn bandwidth_saved(&self) -> Option<f64> {
        let plain = self.uncompressed_sectors;
        (plain > 0).then(|| 1.0 - self.device_sectors() as f64 / plain as f64)
    }

    /// Returns the hit rate of the metadata cache; `None` before the first access.
    pub fn metadata_hit_rate(&self) -> Option<f64> {
        let all = self.metadata_hits + self.metadata_misses;
        (all > 0).then(|| self.metadata_hits as f64 / all as f64)
    }

    /// Adds reads of entries in a compressed line.
    pub(crate) fn read(&mut self, target: Target, classes: &Classes) {
        self.entries_read += classes.iter().sum::<u64>();
        let (device, buddy) = sectors(target, classes);
        self.device_sectors_read += device;
        self.buddy_sectors_read += buddy;
    }

    /// Adds writes of entries in a compressed line.
    pub(crate) fn wrote(&mut self, target: Target, classes: &Classes) {
        self.entries_written += classes.iter().sum::<u64>();
        let (device, buddy) = sectors(target, classes);
        self.device_sectors_written += device;
        self.buddy_sectors_written += buddy;
    }

    /// Adds a metadata-cache result.
    pub(crate) fn asked(&mut self, cache: &CacheSpec, outcome: Outcome) {
        self.metadata_hits += outcome.hits;
        self.metadata_misses += outcome.misses;
        let line_sectors = cache.line_bytes / SECTOR_BYTES as u64;
        self.metadata_sectors += (outcome.misses + outcome.write_backs) * line_sectors;
    }

    /// Returns the sum of both.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        let (ours, theirs) = (self.to_array(), other.to_array());
        Self::from_array(std::array::from_fn(|i| ours[i] + theirs[i]))
    }

    fn to_array(self) -> [u64; FIELDS] {
        [
            self.entries_read,
            self.entries_written,
            self.device_sectors_read,
            self.device_sectors_written,
            self.buddy_sectors_read,
            self.buddy_sectors_written,
            self.metadata_hits,
            self.metadata_misses,
            self.metadata_sectors,
            self.uncompressed_sectors,
        ]
    }

    fn from_array(fields: [u64; FIELDS]) -> Self {
        let mut fields = fields.into_iter();
        let mut next = || fields.next().expect("as many values as fields");
        Self {
            entries_read: next(),
            entries_written: next(),
            device_sectors_read: next(),
            device_sectors_written: next(),
            buddy_sectors_read: next(),
            buddy_sectors_written: next(),
            metadata_hits: next(),
            metadata_misses: next(),
            metadata_sectors: next(),
            uncompressed_sectors: next(),
        }
    }
}

/// Returns the device and buddy sectors of entries with one target. Computed once per line from the
/// class counts.
fn sectors(target: Target, classes: &Classes) -> (u64, u64) {
    let sectors = |bytes: usize| Span { start: 0, bytes: bytes as u64 }.sectors();
    SizeClass::ALL.into_iter().zip(classes).fold((0, 0), |(device, buddy), (class, count)| {
        let (on_device, in_slot) = target.split(class);
        (device + count * sectors(on_device), buddy + count * sectors(in_slot))
    })
}

/// Traffic counters shared by threads.
#[derive(Debug, Default)]
pub(crate) struct SharedTraffic([AtomicU64; FIELDS]);

impl SharedTraffic {
    pub(crate) fn add(&self, traffic: &Traffic) {
        for (sum, more) in self.0.iter().zip(traffic.to_array()).filter(|(_, more)| *more > 0) {
            sum.fetch_add(more, Relaxed);
        }
    }

    pub(crate) fn get(&self) -> Traffic {
        Traffic::from_array(std::array::from_fn(|i| self.0[i].load(Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversion_to_an_array_keeps_the_fields() {
        let numbers: [u64; FIELDS] = std::array::from_fn(|i| i as u64);
        assert_eq!(Traffic::from_array(numbers).to_array(), numbers);
        let shared = SharedTraffic::default();
        shared.add(&Traffic::from_array(numbers));
        shared.add(&Traffic::from_array(numbers));
        assert_eq!(shared.get().to_array(), numbers.map(|n| 2 * n));
    }

    #[test]
    fn an_entry_costs_the_sectors_of_its_two_parts() {
        let cost = |target, class: SizeClass| {
            let mut classes = Classes::default();
            classes[class.index()] = 1;
            sectors(target, &classes)
        };
        assert_eq!(cost(Target::X2, SizeClass::Zero), (0, 0));
        assert_eq!(cost(Target::X2, SizeClass::S3), (2, 1));
        assert_eq!(cost(Target::X16, SizeClass::B8), (1, 0));
        assert_eq!(cost(Target::X16, SizeClass::S1), (0, 1));
        assert_eq!(cost(Target::X4, SizeClass::Raw), (1, 3));
        assert_eq!(cost(Target::X1, SizeClass::B8), (1, 0));
    }
}
