//! A 32-byte metadata line: the nibbles of 64 entries and the lock of those entries.
//!
//! The metadata region is an array of lines with one lock each. Every access to an entry's bytes,
//! on the device or in the carve-out, holds the lock of its line: shared to read, exclusive to
//! write. Entries of different lines never contend, and no entry is seen half written.

use buddy_core::{ENTRIES_PER_PAGE, Error, Nibble, PAGE_BYTES};

use crate::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Entries per line.
pub(crate) const LINE_ENTRIES: u64 = ENTRIES_PER_PAGE as u64;
/// Bytes of data per line.
pub(crate) const LINE_DATA_BYTES: u64 = PAGE_BYTES as u64;
/// Bytes of a line.
pub(crate) const LINE_BYTES: u64 = LINE_ENTRIES / 2;

/// The nibbles of 64 entries.
#[derive(Clone, Default)]
pub(crate) struct Line([u8; LINE_BYTES as usize]);

impl Line {
    /// Returns the nibble of entry `entry` of the line; even entries are in the low four bits.
    #[inline]
    pub(crate) fn get(&self, entry: usize) -> Result<Nibble, Error> {
        Nibble::from_bits(self.0[entry / 2] >> (entry % 2 * 4) & 0xf)
    }

    /// Sets the nibble of entry `entry` of the line.
    #[inline]
    pub(crate) fn set(&mut self, entry: usize, nibble: Nibble) {
        let shift = entry % 2 * 4;
        let byte = &mut self.0[entry / 2];
        *byte = *byte & (0xf0 >> shift) | nibble.bits() << shift;
    }

    /// Marks every entry as zero.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    #[cfg(test)]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// The metadata region: 32 bytes and a lock per 64 entries.
pub(crate) struct Lines(Box<[RwLock<Line>]>);

impl Lines {
    /// Creates cleared lines for `data_bytes` of data.
    pub(crate) fn new(data_bytes: u64) -> Self {
        Self((0..data_bytes / LINE_DATA_BYTES).map(|_| RwLock::default()).collect())
    }

    /// Returns the bytes of the region.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.len() as u64 * LINE_BYTES
    }

    /// Locks the line of the data at `address` for reading.
    #[inline]
    pub(crate) fn read(&self, address: u64) -> RwLockReadGuard<'_, Line> {
        self.0[(address / LINE_DATA_BYTES) as usize].read().expect("a line's lock is never poisoned")
    }

    /// Locks the line of the data at `address` for writing.
    #[inline]
    pub(crate) fn write(&self, address: u64) -> RwLockWriteGuard<'_, Line> {
        self.0[(address / LINE_DATA_BYTES) as usize].write().expect("a line's lock is never poisoned")
    }
}

#[cfg(test)]
mod tests {
    use buddy_core::{Extent, Layout, SizeClass, Target};

    use super::*;

    #[test]
    fn setting_a_nibble_changes_no_other() {
        let classes =
            |line: &Line| -> Vec<SizeClass> { (0..64).map(|i| line.get(i).unwrap().class()).collect() };
        for i in 0..64 {
            let mut line = Line::default();
            for class in SizeClass::ALL {
                line.set(i, Nibble::new(class, Layout::A));
                let mut expected = vec![SizeClass::Zero; 64];
                expected[i] = class;
                assert_eq!(classes(&line), expected);
            }
        }
    }

    #[test]
    fn a_reserved_nibble_is_an_error() {
        let mut line = Line::default();
        line.bytes_mut()[3] = 0x90;
        assert_eq!(line.get(7).err(), Some(Error::Nibble(9)));
        assert!(line.get(6).is_ok());
    }

    #[test]
    fn lines_follow_the_address_map() {
        let extent =
            Extent { target: Target::X2, entries: 64, device_base: 0, buddy_base: 0, nibble_base: 192 };
        for entry in 0..64 {
            let mut line = Line::default();
            line.set(entry, Nibble::new(SizeClass::Raw, Layout::A));
            let place = extent.locate(entry as u64).unwrap().nibble;
            assert_eq!(line.0[(place.byte % LINE_BYTES) as usize] >> place.shift & 0xf, 5);
        }
    }
}
