//! Entries in their slots: the only code that packs and unpacks stored entries.

use std::sync::atomic::AtomicU64;

use buddy_codec::{Codec, Packed};
use buddy_core::{ENTRY_BYTES, Entry, Extent, Nibble, SizeClass, ZERO_ENTRY};

use crate::{
    BuddyMemory, Error,
    line::Line,
    region::{WORD, load_words, store_words},
    sync::Guard,
};

/// The 64 slots of a line; users must hold the line's lock.
///
/// Slots have constant strides in both memories, so the words of the line are located once. Reading
/// a one-sector entry takes 79 instructions besides its codec, against 128 with the address map per
/// entry.
pub(crate) struct Slots<'a> {
    extent: Extent,
    device: &'a [AtomicU64],
    buddy: &'a [AtomicU64],
    guards: (&'a Guard, &'a Guard),
    /// Words on the device and in the buddy slot, per class.
    parts: [(usize, usize); 6],
    /// Slot strides in words, on the device and in buddy memory.
    strides: (usize, usize),
    /// Start of the allocation in the data address space, for messages.
    base: u64,
}

impl<'a> Slots<'a> {
    pub(crate) fn new(memory: &'a BuddyMemory, extent: Extent, base: u64) -> Self {
        let words = |(device, buddy): (usize, usize)| (device / WORD, buddy / WORD);
        Self {
            extent,
            device: memory.device.words(extent.device_base, extent.device_bytes()),
            buddy: memory.carve_out.words(extent.buddy_base, extent.buddy_bytes()),
            guards: (memory.device.guard(), memory.carve_out.guard()),
            parts: SizeClass::ALL.map(|class| words(extent.target.split(class))),
            strides: words((extent.target.device_bytes(), extent.target.buddy_bytes())),
            base,
        }
    }

    /// Returns the extent of the line.
    pub(crate) fn extent(&self) -> &Extent {
        &self.extent
    }

    /// Reads entry `entry` into `out` and returns its class. The codec is called only for streams.
    #[inline(always)]
    pub(crate) fn load(
        &self,
        codec: &Codec,
        line: &Line,
        entry: usize,
        out: &mut Entry,
    ) -> Result<SizeClass, Error> {
        let nibble = self.nibble(line, entry)?;
        let class = nibble.class();
        match class {
            SizeClass::Zero => *out = ZERO_ENTRY,
            SizeClass::Raw => self.gather(entry, class, out),
            _ => {
                let mut stored = ZERO_ENTRY;
                self.gather(entry, class, &mut stored);
                match codec.unpack(nibble, &stored) {
                    Ok(unpacked) => *out = unpacked,
                    Err(source) => return Err(Error::Codec { offset: self.offset(entry), source }),
                }
            }
        }
        Ok(class)
    }

    /// Stores a packed entry and returns its class.
    #[inline(always)]
    pub(crate) fn store(&self, line: &mut Line, entry: usize, packed: &Packed) -> SizeClass {
        let class = packed.nibble().class();
        self.scatter(entry, class, packed.bytes());
        line.set(entry, packed.nibble());
        class
    }

    /// Copies the stored bytes of an entry from `old`; returns their number.
    pub(crate) fn copy_from(&self, old: &Slots<'_>, line: &Line, entry: usize) -> Result<u64, Error> {
        let class = self.nibble(line, entry)?.class();
        let mut stored = ZERO_ENTRY;
        old.gather(entry, class, &mut stored);
        self.scatter(entry, class, &stored);
        Ok(class.bytes() as u64)
    }

    #[inline]
    fn nibble(&self, line: &Line, entry: usize) -> Result<Nibble, Error> {
        line.get(entry).map_err(|source| Error::Metadata { offset: self.offset(entry), source })
    }

    /// Gathers the stored bytes of an entry of a class.
    #[inline(always)]
    fn gather(&self, entry: usize, class: SizeClass, stored: &mut Entry) {
        let (device, buddy) = self.parts[class.index()];
        self.guards.0.reads(self.extent.device_base, self.extent.device_bytes());
        self.guards.1.reads(self.extent.buddy_base, self.extent.buddy_bytes());
        let (on_device, rest) = stored.split_at_mut(device * WORD);
        load_words(&self.device[entry * self.strides.0..][..device], on_device);
        if buddy > 0 {
            load_words(&self.buddy[entry * self.strides.1..][..buddy], &mut rest[..buddy * WORD]);
        }
    }

    /// Scatters the stored bytes of an entry of a class.
    #[inline(always)]
    fn scatter(&self, entry: usize, class: SizeClass, stored: &[u8]) {
        let (device, buddy) = self.parts[class.index()];
        self.guards.0.writes(self.extent.device_base, self.extent.device_bytes());
        self.guards.1.writes(self.extent.buddy_base, self.extent.buddy_bytes());
        let (on_device, rest) = stored.split_at(device * WORD);
        store_words(&self.device[entry * self.strides.0..][..device], on_device);
        if buddy > 0 {
            store_words(&self.buddy[entry * self.strides.1..][..buddy], &rest[..buddy * WORD]);
        }
    }

    /// Returns the offset of an entry in its allocation.
    #[cold]
    fn offset(&self, entry: usize) -> u64 {
        (self.extent.nibble_base + entry as u64) * ENTRY_BYTES as u64 - self.base
    }
}
