//! Reading and writing bytes.
//!
//! A range is split at metadata lines. Per line, its lock is taken once, the page table and the
//! metadata cache are accessed once, and entries are counted by class; the traffic follows from the
//! counts. The cost per entry is thus little more than its codec.

use buddy_codec::{Codec, Packed};
use buddy_core::{ENTRY_BYTES, Entry, Extent, Span, ZERO_ENTRY};

use crate::{
    BuddyMemory, Error, Handle, Traffic,
    allocation::Allocation,
    cut::{cut_at_lines, cut_at_lines_mut, entries, entry_of, to_next_entry, within},
    line::{LINE_BYTES, LINE_DATA_BYTES, LINE_ENTRIES, Line},
    slots::Slots,
    sync::RwLockWriteGuard,
    traffic::Classes,
};

impl BuddyMemory {
    /// Reads bytes of an allocation from `offset` on.
    ///
    /// # Errors
    /// A handle that is not live, [`Error::OutOfRange`], or an entry that cannot be decompressed;
    /// the contents of `out` are then unspecified.
    pub fn read(&self, handle: Handle, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let allocation = self.find(handle)?;
        let _held = allocation.shared()?;
        allocation.check(offset, out.len() as u64)?;
        let mut access = Access::new(self, &allocation, offset, out.len());
        let done = access.read(offset, out);
        allocation.traffic.add(&access.traffic);
        done
    }

    /// Writes bytes of an allocation from `offset` on. Partially written entries are read, modified
    /// and written.
    ///
    /// # Errors
    /// A handle that is not live, [`Error::OutOfRange`], or a partially written entry that cannot
    /// be decompressed; nothing is written then.
    pub fn write(&self, handle: Handle, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let allocation = self.find(handle)?;
        let _held = allocation.shared()?;
        allocation.check(offset, bytes.len() as u64)?;
        let mut access = Access::new(self, &allocation, offset, bytes.len());
        access.check_ends(offset, bytes.len())?;
        let done = access.write(offset, bytes);
        allocation.traffic.add(&access.traffic);
        done
    }
}

/// A read or write of one allocation.
struct Access<'a> {
    memory: &'a BuddyMemory,
    codec: Option<&'a Codec>,
    /// Start of the allocation in the data address space.
    base: u64,
    traffic: Traffic,
}

impl<'a> Access<'a> {
    fn new(memory: &'a BuddyMemory, allocation: &'a Allocation, offset: u64, len: usize) -> Self {
        let span = Span { start: offset, bytes: len as u64 };
        let traffic = Traffic { uncompressed_sectors: span.sectors(), ..Traffic::default() };
        Self { memory, codec: allocation.codec.as_ref(), base: memory.address(allocation), traffic }
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        for (address, out) in cut_at_lines_mut(self.base + offset, out) {
            match self.codec_at(address) {
                Some(codec) => self.read_line(codec, address, out)?,
                None => self.read_plain(address, out)?,
            }
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        for (address, bytes) in cut_at_lines(self.base + offset, bytes) {
            match self.codec_at(address) {
                Some(codec) => self.write_line(codec, address, bytes)?,
                None => self.write_plain(address, bytes)?,
            }
        }
        Ok(())
    }

    /// Reads bytes within one line.
    fn read_line(&mut self, codec: &Codec, address: u64, out: &mut [u8]) -> Result<(), Error> {
        let slots = self.slots(address)?;
        let line = self.memory.lines.read(address);
        let mut classes = Classes::default();
        let mut entry = entry_of(address);
        let (head, rest) = out.split_at_mut(to_next_entry(address, out.len()));
        let (whole, tail) = rest.as_chunks_mut();
        if !head.is_empty() {
            let bytes = read_part(&slots, codec, &line, entry, &mut classes)?;
            head.copy_from_slice(&bytes[within(address)..][..head.len()]);
            entry += 1;
        }
        for out in whole {
            classes[slots.load(codec, &line, entry, out)?.index()] += 1;
            entry += 1;
        }
        if !tail.is_empty() {
            let bytes = read_part(&slots, codec, &line, entry, &mut classes)?;
            tail.copy_from_slice(&bytes[..tail.len()]);
        }
        drop(line);
        self.traffic.read(slots.extent().target, &classes);
        self.ask_cache(slots.extent(), classes.iter().sum(), false);
        Ok(())
    }

    /// Writes bytes within one line.
    fn write_line(&mut self, codec: &Codec, address: u64, bytes: &[u8]) -> Result<(), Error> {
        let mut writer = LineWriter::new(codec, self.slots(address)?, self.memory.lines.write(address));
        let mut entry = entry_of(address);
        let (head, rest) = bytes.split_at(to_next_entry(address, bytes.len()));
        let (whole, tail) = rest.as_chunks();
        if !head.is_empty() {
            writer.part(entry, within(address), head)?;
            entry += 1;
        }
        for bytes in whole {
            writer.whole(entry, bytes);
            entry += 1;
        }
        if !tail.is_empty() {
            writer.part(entry, 0, tail)?;
        }
        let LineWriter { slots, line, read, written, .. } = writer;
        drop(line);
        self.traffic.read(slots.extent().target, &read);
        self.traffic.wrote(slots.extent().target, &written);
        self.ask_cache(slots.extent(), read.iter().chain(&written).sum(), true);
        Ok(())
    }

    /// Returns the codec of the page at `address`; `None` if it is uncompressed.
    fn codec_at(&self, address: u64) -> Option<&'a Codec> {
        self.codec.filter(|_| self.memory.page_table.compresses(address))
    }

    /// Returns the slots of the line at `address`.
    fn slots(&self, address: u64) -> Result<Slots<'a>, Error> {
        Ok(Slots::new(self.memory, self.memory.page_table.line_extent(address)?, self.base))
    }

    /// Decodes the partially written entries at both ends of a write in advance, so that the write
    /// cannot fail half-way.
    fn check_ends(&self, offset: u64, len: usize) -> Result<(), Error> {
        let (first, end) = (self.base + offset, self.base + offset + len as u64);
        if within(first) + len <= ENTRY_BYTES {
            return Ok(());
        }
        let mut entry = ZERO_ENTRY;
        for at in [first, end] {
            if within(at) != 0
                && let Some(codec) = self.codec_at(at)
            {
                let (slots, line) = (self.slots(at)?, self.memory.lines.read(at));
                slots.load(codec, &line, entry_of(at), &mut entry)?;
            }
        }
        Ok(())
    }

    /// Models metadata accesses to the line of `extent`.
    fn ask_cache(&mut self, extent: &Extent, count: u64, write: bool) {
        let line = extent.nibble_base / LINE_ENTRIES;
        let outcome = self.memory.cache.access(line * LINE_BYTES, count, write);
        self.traffic.asked(self.memory.cache.spec(), outcome);
    }

    /// Reads uncompressed bytes. The line's lock only orders the access; there is no metadata.
    fn read_plain(&mut self, address: u64, out: &mut [u8]) -> Result<(), Error> {
        let span = self.plain_span(address, out.len())?;
        let _line = self.memory.lines.read(address);
        self.memory.device.load(span.start, out);
        self.traffic.entries_read += entries(address, out.len());
        self.traffic.device_sectors_read += span.sectors();
        Ok(())
    }

    /// Writes uncompressed bytes.
    fn write_plain(&mut self, address: u64, bytes: &[u8]) -> Result<(), Error> {
        let span = self.plain_span(address, bytes.len())?;
        let _line = self.memory.lines.write(address);
        self.memory.device.store(span.start, bytes);
        self.traffic.entries_written += entries(address, bytes.len());
        self.traffic.device_sectors_written += span.sectors();
        Ok(())
    }

    fn plain_span(&self, address: u64, len: usize) -> Result<Span, Error> {
        let extent = self.memory.page_table.line_extent(address)?;
        Ok(Span { start: extent.device_base + address % LINE_DATA_BYTES, bytes: len as u64 })
    }
}

/// Writes entries of one line.
struct LineWriter<'a> {
    codec: &'a Codec,
    slots: Slots<'a>,
    line: RwLockWriteGuard<'a, Line>,
    packed: Packed,
    read: Classes,
    written: Classes,
}

impl<'a> LineWriter<'a> {
    fn new(codec: &'a Codec, slots: Slots<'a>, line: RwLockWriteGuard<'a, Line>) -> Self {
        let (read, written) = (Classes::default(), Classes::default());
        Self { codec, slots, line, packed: Packed::default(), read, written }
    }

    #[inline(always)]
    fn whole(&mut self, entry: usize, bytes: &Entry) {
        self.codec.pack(bytes, &mut self.packed);
        let class = self.slots.store(&mut self.line, entry, &self.packed);
        self.written[class.index()] += 1;
    }

    /// Reads, modifies and writes one entry.
    fn part(&mut self, entry: usize, within: usize, bytes: &[u8]) -> Result<(), Error> {
        let mut whole = read_part(&self.slots, self.codec, &self.line, entry, &mut self.read)?;
        whole[within..][..bytes.len()].copy_from_slice(bytes);
        self.whole(entry, &whole);
        Ok(())
    }
}

/// Reads part of an entry.
fn read_part(
    slots: &Slots<'_>,
    codec: &Codec,
    line: &Line,
    entry: usize,
    classes: &mut Classes,
) -> Result<Entry, Error> {
    let mut whole = ZERO_ENTRY;
    classes[slots.load(codec, line, entry, &mut whole)?.index()] += 1;
    Ok(whole)
}
