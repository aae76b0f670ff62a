//! Compressed allocations that own their memory and are freed one by one.

use std::sync::{Arc, Mutex, PoisonError};

use buddy_codec::Codec;
use buddy_core::{ENTRY_BYTES, Targets};
use cudarc::driver::CudaStream;

use crate::{
    BuddyBuffer, BuddyPool, Carveout, DeviceBytes, DeviceSpan, Error, Fault, Gpu, Stats, driver::copy,
};

/// Plain memory for the copy when targets change.
const PIECE_BYTES: u64 = 64 << 20;

/// A compressed allocation with a pool of its own, freed when dropped. Offsets and lengths are in
/// bytes, and multiples of an entry except at the end of the allocation.
#[derive(Debug)]
pub struct Allocation {
    gpu: Gpu,
    buffer: BuddyBuffer,
    bytes: u64,
    device_bytes: u64,
    buddy_bytes: u64,
    /// One plain entry, if the last one is partial.
    tail: Option<DeviceBytes>,
    /// Guards the buffer's counters and its fault, of which there is one block.
    report: Mutex<()>,
}

impl Allocation {
    /// Allocates the memory, filled with zeros.
    ///
    /// # Errors
    /// [`Error::Targets`] for ranges that do not cover its pages, [`Error::DeviceMemory`],
    /// [`Error::Pinned`], [`Error::NoKernels`], or an error of the compiler or the driver.
    pub fn new(gpu: &Gpu, bytes: u64, targets: impl Into<Targets>, codec: Codec) -> Result<Self, Error> {
        let targets = targets.into();
        let entries = bytes.div_ceil(ENTRY_BYTES as u64);
        if entries > u64::from(u32::MAX) {
            return Err(Error::Range { first: 0, end: entries, entries: u64::from(u32::MAX) });
        }
        let (device_bytes, buddy_bytes) = BuddyPool::room_for_pages(&targets, entries)?;
        let mut pool = BuddyPool::new(gpu, device_bytes, Carveout::Host, buddy_bytes)?;
        let buffer = pool.buffer(codec, targets, entries)?;
        let device_bytes = device_bytes + buffer.learned_bytes();
        let short = !bytes.is_multiple_of(ENTRY_BYTES as u64);
        let tail = short.then(|| DeviceBytes::new(gpu, ENTRY_BYTES as u64)).transpose()?;
        Ok(Self { gpu: gpu.clone(), buffer, bytes, device_bytes, buddy_bytes, tail, report: Mutex::new(()) })
    }

    /// Returns the requested length.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the device memory in use, with metadata and the codec's parameters.
    pub fn device_bytes(&self) -> u64 {
        self.device_bytes
    }

    /// Returns the pinned host memory in use.
    pub fn buddy_bytes(&self) -> u64 {
        self.buddy_bytes
    }

    /// Returns the compressed entries; the last one is padded with zeros.
    pub fn buffer(&self) -> &BuddyBuffer {
        &self.buffer
    }

    /// Compresses `from` into the bytes from `offset` on.
    ///
    /// # Errors
    /// [`Error::Bytes`], [`Error::Shape`], or a driver error.
    pub fn write(&self, on: &CudaStream, offset: u64, from: DeviceSpan<'_>) -> Result<(), Error> {
        let parts = self.parts(offset, from)?;
        self.buffer.write(on, parts.first, parts.whole)?;
        let (Some(last), Some(tail)) = (parts.last, &self.tail) else { return Ok(()) };
        let end = parts.first + parts.whole.entries();
        self.gpu.check("clear the tail", tail.clear_on(on))?;
        self.gpu.check("copy the tail", copy(on, last, tail.all()))?;
        self.buffer.write(on, end, tail.all())
    }

    /// Decompresses the bytes from `offset` on into `to`. An entry that fails to decode reads as
    /// zeros, and the next [`stats`](Self::stats) name it; [`read_checked`](Self::read_checked)
    /// reports it at once.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn read(&self, on: &CudaStream, offset: u64, to: DeviceSpan<'_>) -> Result<(), Error> {
        let parts = self.parts(offset, to)?;
        self.buffer.read(on, parts.first, parts.whole)?;
        let (Some(last), Some(tail)) = (parts.last, &self.tail) else { return Ok(()) };
        self.buffer.read(on, parts.first + parts.whole.entries(), tail.all())?;
        self.gpu.check("copy the tail", copy(on, tail.all(), last))
    }

    /// Reads and waits for the stream: an entry that fails to decode is an error.
    ///
    /// # Errors
    /// [`Error::Fault`] with the lowest entry that failed to decode; otherwise as for
    /// [`write`](Self::write).
    pub fn read_checked(&self, on: &CudaStream, offset: u64, to: DeviceSpan<'_>) -> Result<(), Error> {
        let _one = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        self.buffer.clear_fault(on)?;
        self.read(on, offset, to)?;
        Fault::checked(self.buffer.fault(on)?)
    }

    /// Changes the targets: allocates new memory, moves all entries on the stream, waits, and frees
    /// the old memory. On an error the allocation is unchanged.
    ///
    /// # Errors
    /// As for [`new`](Self::new) and [`read_checked`](Self::read_checked).
    pub fn retarget(&mut self, on: &CudaStream, targets: impl Into<Targets>) -> Result<(), Error> {
        let next = Self::new(&self.gpu, self.bytes, targets, self.buffer.codec().clone())?;
        let piece = DeviceBytes::new(&self.gpu, PIECE_BYTES.min(self.buffer.entries() * ENTRY_BYTES as u64))?;
        if self.bytes > 0 {
            self.buffer.clear_fault(on)?;
            self.buffer.copy_to(on, &next.buffer, piece.all())?;
            Fault::checked(self.buffer.fault(on)?)?;
        }
        self.gpu.wait(on)?;
        *self = next;
        Ok(())
    }

    /// Zeroes the memory on the device and on the host, and waits, so that no data remains in freed
    /// memory. The allocation then holds zeros.
    ///
    /// # Errors
    /// A driver error.
    pub fn scrub(&self) -> Result<(), Error> {
        let _one = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        self.buffer.scrub()?;
        self.tail.as_ref().map_or(Ok(()), |tail| tail.fill(0))
    }

    /// Returns statistics at this point of the stream. Waits for the stream, and for other callers.
    ///
    /// # Errors
    /// A driver error.
    pub fn stats(&self, on: &Arc<CudaStream>) -> Result<Stats, Error> {
        let _one = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        self.buffer.stats(on)?;
        self.gpu.wait(on)?;
        Ok(self.buffer.latest())
    }

    fn parts<'a>(&self, offset: u64, plain: DeviceSpan<'a>) -> Result<Parts<'a>, Error> {
        let entry = ENTRY_BYTES as u64;
        let end = offset.checked_add(plain.bytes()).filter(|&end| end <= self.bytes);
        let whole = |end: u64| end == self.bytes || end.is_multiple_of(entry);
        if !offset.is_multiple_of(entry) || !end.is_some_and(whole) {
            return Err(Error::Bytes { offset, bytes: plain.bytes(), length: self.bytes });
        }
        plain.check_reach()?;
        let middle = plain.bytes() / entry * entry;
        let (whole, last) = (plain.part(0..middle), plain.part(middle..plain.bytes()));
        Ok(Parts { first: offset / entry, whole, last: (last.bytes() > 0).then_some(last) })
    }
}

/// A range of bytes as entries.
struct Parts<'a> {
    first: u64,
    whole: DeviceSpan<'a>,
    /// The last entry, if it is partial.
    last: Option<DeviceSpan<'a>>,
}
