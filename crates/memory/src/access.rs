//! Reading and writing bytes: the only place where entries are packed and unpacked.
//!
//! A range is cut at lines of metadata. For each line its lock is taken once, the page table is asked once, the
//! metadata cache is asked once, and its entries are only counted by class; so an entry costs little beside its
//! codec. What a line's entries moved is worked out from their classes.

use buddy_codec::{Codec, Packed};
use buddy_core::{ENTRY_BYTES, Entry, Extent, Place, SizeClass, Span, Target, ZERO_ENTRY};

use crate::{
    BuddyMemory, Error, Handle, Traffic,
    allocation::Allocation,
    line::{LINE_BYTES, LINE_DATA_BYTES, LINE_ENTRIES, Line},
    traffic::Classes,
};

impl BuddyMemory {
    /// Reads the bytes of an allocation from `offset` on.
    ///
    /// # Errors
    /// A handle that is not live, [`Error::OutOfRange`], or an entry that cannot be decompressed; what `out`
    /// holds is then unspecified.
    pub fn read(&self, handle: Handle, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let allocation = self.find(handle)?;
        let _held = allocation.shared()?;
        allocation.check(offset, out.len() as u64)?;
        let mut access = Access::new(self, &allocation, offset, out.len());
        let done = access.read(offset, out);
        allocation.traffic.add(&access.traffic);
        done
    }

    /// Writes the bytes of an allocation from `offset` on. An entry of which only a part is written is read,
    /// changed and written.
    ///
    /// # Errors
    /// A handle that is not live, [`Error::OutOfRange`], or an entry at either end that cannot be decompressed;
    /// nothing is then written.
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

    /// Gathers the stored bytes of an entry of a class from its two parts.
    #[inline]
    pub(crate) fn gather(&self, target: Target, place: &Place, class: SizeClass, stored: &mut Entry) {
        let (device, buddy) = target.split(class);
        self.device.load(place.device.start, &mut stored[..device]);
        if buddy > 0 {
            self.carve_out.load(place.buddy.start, &mut stored[device..device + buddy]);
        }
    }

    /// Puts the stored bytes of an entry of a class into its two parts.
    #[inline]
    pub(crate) fn scatter(&self, target: Target, place: &Place, class: SizeClass, stored: &[u8]) {
        let (device, buddy) = target.split(class);
        self.device.store(place.device.start, &stored[..device]);
        if buddy > 0 {
            self.carve_out.store(place.buddy.start, &stored[device..device + buddy]);
        }
    }
}

/// One call on one allocation.
struct Access<'a> {
    memory: &'a BuddyMemory,
    codec: Option<&'a Codec>,
    /// Where the allocation begins in the address space of data.
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
        for (address, out) in cut_mut::<LINE_DATA_BYTES>(self.base + offset, out) {
            match self.codec {
                Some(codec) => self.read_line(codec, address, out)?,
                None => self.read_plain(address, out)?,
            }
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        for (address, bytes) in cut::<LINE_DATA_BYTES>(self.base + offset, bytes) {
            match self.codec {
                Some(codec) => self.write_line(codec, address, bytes)?,
                None => self.write_plain(address, bytes)?,
            }
        }
        Ok(())
    }

    /// Reads bytes of one line.
    fn read_line(&mut self, codec: &Codec, address: u64, out: &mut [u8]) -> Result<(), Error> {
        let extent = self.memory.page_table.line_extent(address)?;
        let line = self.memory.lines.read(address);
        let mut classes = Classes::default();
        for (at, out) in cut_mut::<{ ENTRY_BYTES as u64 }>(address, out) {
            let class = match <&mut Entry>::try_from(&mut *out) {
                Ok(whole) => self.load(codec, &extent, &line, at, whole)?,
                Err(_) => {
                    let mut entry = ZERO_ENTRY;
                    let class = self.load(codec, &extent, &line, at, &mut entry)?;
                    out.copy_from_slice(&entry[within(at)..][..out.len()]);
                    class
                }
            };
            classes[class.index()] += 1;
        }
        drop(line);
        self.traffic.read(extent.target, &classes);
        self.ask_cache(&extent, classes.iter().sum(), false);
        Ok(())
    }

    /// Writes bytes of one line.
    fn write_line(&mut self, codec: &Codec, address: u64, bytes: &[u8]) -> Result<(), Error> {
        let extent = self.memory.page_table.line_extent(address)?;
        let mut line = self.memory.lines.write(address);
        let (mut read, mut written) = (Classes::default(), Classes::default());
        let mut packed = Packed::default();
        for (at, bytes) in cut::<{ ENTRY_BYTES as u64 }>(address, bytes) {
            match <&Entry>::try_from(bytes) {
                Ok(whole) => codec.pack(whole, &mut packed),
                Err(_) => {
                    let mut entry = ZERO_ENTRY;
                    let class = self.load(codec, &extent, &line, at, &mut entry)?;
                    read[class.index()] += 1;
                    entry[within(at)..][..bytes.len()].copy_from_slice(bytes);
                    codec.pack(&entry, &mut packed);
                }
            }
            let (place, nibble) = (place(&extent, at), packed.nibble());
            self.memory.scatter(extent.target, &place, nibble.class(), packed.bytes());
            line.set(place.nibble, nibble);
            written[nibble.class().index()] += 1;
        }
        drop(line);
        self.traffic.read(extent.target, &read);
        self.traffic.wrote(extent.target, &written);
        self.ask_cache(&extent, read.iter().chain(&written).sum(), true);
        Ok(())
    }

    /// Reads the whole entry at `at` into `out` and says its class. The codec is asked only where there is a
    /// stream.
    #[inline]
    fn load(
        &self,
        codec: &Codec,
        extent: &Extent,
        line: &Line,
        at: u64,
        out: &mut Entry,
    ) -> Result<SizeClass, Error> {
        let place = place(extent, at);
        let nibble =
            line.get(place.nibble).map_err(|source| Error::Metadata { offset: self.entry(at), source })?;
        match nibble.class() {
            SizeClass::Zero => *out = ZERO_ENTRY,
            SizeClass::Raw => self.memory.gather(extent.target, &place, SizeClass::Raw, out),
            class => {
                let mut stored = ZERO_ENTRY;
                self.memory.gather(extent.target, &place, class, &mut stored);
                let entry = codec.unpack(nibble, &stored);
                *out = entry.map_err(|source| Error::Codec { offset: self.entry(at), source })?;
            }
        }
        Ok(nibble.class())
    }

    /// Where in the allocation the entry at `at` begins.
    fn entry(&self, at: u64) -> u64 {
        at - within(at) as u64 - self.base
    }

    /// Makes sure that a write of several entries cannot fail once it has begun: only the entries at its ends
    /// are read, and both are read here first.
    fn check_ends(&self, offset: u64, len: usize) -> Result<(), Error> {
        let (first, end) = (self.base + offset, self.base + offset + len as u64);
        let Some(codec) = self.codec else { return Ok(()) };
        if within(first) + len <= ENTRY_BYTES {
            return Ok(());
        }
        let mut entry = ZERO_ENTRY;
        for at in [first, end] {
            if within(at) != 0 {
                let extent = self.memory.page_table.line_extent(at)?;
                self.load(codec, &extent, &self.memory.lines.read(at), at, &mut entry)?;
            }
        }
        Ok(())
    }

    /// Counts metadata accesses to the line of `extent`.
    fn ask_cache(&mut self, extent: &Extent, count: u64, write: bool) {
        let line = extent.nibble_base / LINE_ENTRIES;
        let outcome = self.memory.cache.access(line * LINE_BYTES, count, write);
        self.traffic.asked(self.memory.cache.spec(), outcome);
    }

    /// Reads bytes that are kept as they are. The line's lock is taken for order alone: no metadata is touched.
    fn read_plain(&mut self, address: u64, out: &mut [u8]) -> Result<(), Error> {
        let span = self.plain_span(address, out.len())?;
        let _line = self.memory.lines.read(address);
        self.memory.device.load_bytes(span.start, out);
        self.traffic.entries_read += entries(address, out.len());
        self.traffic.device_sectors_read += span.sectors();
        Ok(())
    }

    /// Writes bytes that are kept as they are.
    fn write_plain(&mut self, address: u64, bytes: &[u8]) -> Result<(), Error> {
        let span = self.plain_span(address, bytes.len())?;
        let _line = self.memory.lines.write(address);
        self.memory.device.store_bytes(span.start, bytes);
        self.traffic.entries_written += entries(address, bytes.len());
        self.traffic.device_sectors_written += span.sectors();
        Ok(())
    }

    fn plain_span(&self, address: u64, len: usize) -> Result<Span, Error> {
        let extent = self.memory.page_table.line_extent(address)?;
        Ok(Span { start: extent.device_base + address % LINE_DATA_BYTES, bytes: len as u64 })
    }
}

/// The place of the entry at `at`, of which `extent` is the line.
#[inline]
fn place(extent: &Extent, at: u64) -> Place {
    extent.place(at / ENTRY_BYTES as u64 % LINE_ENTRIES).expect("a line has 64 entries")
}

/// Which byte of its entry `at` is.
#[inline]
fn within(at: u64) -> usize {
    at as usize % ENTRY_BYTES
}

/// How many entries `len` bytes from `address` on touch.
fn entries(address: u64, len: usize) -> u64 {
    let entry = ENTRY_BYTES as u64;
    (address + len as u64).div_ceil(entry) - address / entry
}

/// Cuts bytes that lie at `address` at every multiple of `STEP`; with each piece its address.
#[inline]
fn cut<const STEP: u64>(mut address: u64, mut bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    std::iter::from_fn(move || {
        let len = (STEP - address % STEP).min(bytes.len() as u64);
        let piece = bytes.split_off(..len as usize)?;
        address += len;
        (len > 0).then_some((address - len, piece))
    })
}

/// As [`cut`], for bytes that are written to.
#[inline]
fn cut_mut<const STEP: u64>(
    mut address: u64,
    mut bytes: &mut [u8],
) -> impl Iterator<Item = (u64, &mut [u8])> {
    std::iter::from_fn(move || {
        let len = (STEP - address % STEP).min(bytes.len() as u64);
        let piece = bytes.split_off_mut(..len as usize)?;
        address += len;
        (len > 0).then_some((address - len, piece))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_end_at_multiples_and_make_up_the_whole() {
        let bytes: Vec<u8> = (0..100).collect();
        let pieces: Vec<_> = cut::<32>(50, &bytes).collect();
        let ends: Vec<_> = pieces.iter().map(|(at, piece)| (*at, piece.len())).collect();
        assert_eq!(ends, [(50, 14), (64, 32), (96, 32), (128, 22)]);
        assert_eq!(pieces.iter().flat_map(|(_, piece)| piece.iter().copied()).collect::<Vec<_>>(), bytes);
        assert_eq!(cut::<32>(50, &[]).count(), 0);
        let mut copy = bytes.clone();
        let lengths: Vec<_> = cut_mut::<32>(50, &mut copy).map(|(at, piece)| (at, piece.len())).collect();
        assert_eq!(lengths, ends);
    }

    #[test]
    fn entries_are_counted_where_they_are_touched() {
        assert_eq!([entries(0, 128), entries(127, 2), entries(64, 64), entries(1, 256)], [1, 2, 1, 3]);
    }
}
