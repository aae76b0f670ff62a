//! One compressed allocation that owns its memory: what a program takes and gives back one by one.

use std::sync::{Arc, Mutex, PoisonError};

use buddy_codec::Codec;
use buddy_core::{ENTRY_BYTES, Targets};
use cudarc::driver::CudaStream;

use crate::{
    BuddyBuffer, BuddyPool, Carveout, DeviceBytes, DeviceSpan, Error, Fault, Gpu, Stats, driver::copy,
};

/// Plain memory that a change of the target goes through.
const PIECE_BYTES: u64 = 64 << 20;

/// Bytes in compressed memory, with a pool of their own, freed when dropped. Offsets and lengths
/// count bytes; both are whole entries, except that the last entry may be cut short where the
/// allocation is.
#[derive(Debug)]
pub struct Allocation {
    gpu: Gpu,
    buffer: BuddyBuffer,
    bytes: u64,
    device_bytes: u64,
    buddy_bytes: u64,
    /// One plain entry, if the last one is cut short.
    tail: Option<DeviceBytes>,
    /// Held while the buffer's counters and its fault are in use: there is one block of them.
    report: Mutex<()>,
}

impl Allocation {
    /// Takes the memory; it holds zeros.
    ///
    /// # Errors
    /// [`Error::Targets`] for ranges that do not make up its pages, [`Error::DeviceMemory`],
    /// [`Error::Pinned`], [`Error::NoKernels`], or what compiler or driver say.
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

    /// Its length, as it was asked for.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Device memory that it takes, metadata and what its codec learned included.
    pub fn device_bytes(&self) -> u64 {
        self.device_bytes
    }

    /// Pinned host memory that it takes.
    pub fn buddy_bytes(&self) -> u64 {
        self.buddy_bytes
    }

    /// The compressed entries, the last of them padded with zeros.
    pub fn buffer(&self) -> &BuddyBuffer {
        &self.buffer
    }

    /// Compresses `from` into the bytes from `offset` on.
    ///
    /// # Errors
    /// [`Error::Bytes`], [`Error::Shape`], or what the driver says.
    pub fn write(&self, on: &CudaStream, offset: u64, from: DeviceSpan<'_>) -> Result<(), Error> {
        let parts = self.parts(offset, from)?;
        self.buffer.write(on, parts.first, parts.whole)?;
        let (Some(last), Some(tail)) = (parts.last, &self.tail) else { return Ok(()) };
        let end = parts.first + parts.whole.entries();
        self.gpu.check("clear the tail", tail.clear_on(on))?;
        self.gpu.check("copy the tail", copy(on, last, tail.all()))?;
        self.buffer.write(on, end, tail.all())
    }

    /// Decompresses the bytes from `offset` on into `to`. An entry that does not decode becomes
    /// zeros, and the next [`stats`](Self::stats) say which; [`read_checked`](Self::read_checked)
    /// says it at once.
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

    /// The same, and waits for the stream: an entry that does not decode is an error.
    ///
    /// # Errors
    /// [`Error::Fault`] with the lowest entry that did not decode; otherwise as for
    /// [`write`](Self::write).
    pub fn read_checked(&self, on: &CudaStream, offset: u64, to: DeviceSpan<'_>) -> Result<(), Error> {
        let _one = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        self.buffer.clear_fault(on)?;
        self.read(on, offset, to)?;
        Fault::checked(self.buffer.fault(on)?)
    }

    /// Gives it other targets: takes memory for that beside its own, moves everything there on the
    /// stream, waits, and gives the old memory back. An entry that does not decode is an error, and
    /// it is then as it was.
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

    /// Overwrites its memory with zeros, on the device and on the host, and waits: nothing of what
    /// it held can be found there once it is given back. It holds zeros then.
    ///
    /// # Errors
    /// What the driver says.
    pub fn scrub(&self) -> Result<(), Error> {
        let _one = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        self.buffer.scrub()?;
        self.tail.as_ref().map_or(Ok(()), |tail| tail.fill(0))
    }

    /// What it holds at this point of the stream. Waits for the stream, and for others that ask the
    /// same.
    ///
    /// # Errors
    /// What the driver says.
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
    /// What is there of the last entry, if that is not all.
    last: Option<DeviceSpan<'a>>,
}
