//! Compressed buffers over memory that the caller gives.

use std::{marker::PhantomData, sync::Arc};

use buddy_codec::{Codec, CodecKind};
use buddy_core::{ENTRIES_PER_PAGE, ENTRY_BYTES, Target};
use cudarc::driver::CudaStream;

use crate::{
    DeviceSpan, Error, Fault, Gpu, driver,
    kernels::CodecKernels,
    layout::{BuddyView, Memory},
    learned::Learned,
};

/// Bytes after the nibbles, for the lowest entry that failed to decode.
const FAULT_BYTES: u64 = 128;
/// Alignment of every part.
const ALIGN: u64 = 128;

/// Bytes of a buffer's parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferBytes {
    /// Device memory for the compressed parts of the entries.
    pub device: u64,
    /// Device memory for metadata: four bits per entry, and the fault.
    pub metadata: u64,
    /// GPU-accessible memory for overflow, on the host or elsewhere.
    pub overflow: u64,
}

impl BufferBytes {
    /// Returns the memory of a buffer of `bytes` bytes.
    pub fn of(target: Target, bytes: u64) -> Self {
        let padded = bytes.div_ceil(ENTRY_BYTES as u64).next_multiple_of(ENTRIES_PER_PAGE as u64);
        Self {
            device: padded * target.device_bytes() as u64,
            metadata: (padded / 2).next_multiple_of(ALIGN) + FAULT_BYTES,
            overflow: padded * target.buddy_bytes() as u64,
        }
    }
}

/// The memory of a buffer: each part at least as large as in [`BufferBytes`], aligned to 128 bytes.
#[derive(Debug, Clone, Copy)]
pub struct BufferMemory<'a> {
    /// The compressed parts of the entries.
    pub device: DeviceSpan<'a>,
    /// Nibbles.
    pub metadata: DeviceSpan<'a>,
    /// Overflow.
    pub overflow: DeviceSpan<'a>,
}

/// A buffer of whole entries over given memory. Creating it makes no driver call. Operations are
/// enqueued on the caller's stream, without waiting or allocating, so that they can be captured in
/// a graph; the first must be [`clear`](Self::clear). The memory may be reused once the buffer is
/// no longer needed.
#[derive(Debug, Clone)]
pub struct ExternalBuffer<'a> {
    gpu: Gpu,
    kernels: Arc<CodecKernels>,
    view: BuddyView,
    _learned: Learned,
    metadata: DeviceSpan<'a>,
    memory: PhantomData<BufferMemory<'a>>,
}

impl<'a> ExternalBuffer<'a> {
    /// Creates a buffer over this memory, whose content is arbitrary.
    ///
    /// # Errors
    /// [`Error::Shape`] for memory that is too small or misaligned, [`Error::NoKernels`], or a
    /// compiler error.
    pub fn new(
        gpu: &Gpu,
        codec: &Codec,
        target: Target,
        bytes: u64,
        given: BufferMemory<'a>,
    ) -> Result<Self, Error> {
        Self::with(gpu, (codec.kind(), Learned::of(gpu, codec)?), target, bytes, given)
    }

    /// Creates a bf16 buffer whose window is in device memory, as [`Gpu::train_window`] leaves it,
    /// so that the host need not wait for it. All data must be read with the window that it was
    /// written with.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn with_window(
        gpu: &Gpu,
        window: DeviceSpan<'a>,
        target: Target,
        bytes: u64,
        given: BufferMemory<'a>,
    ) -> Result<Self, Error> {
        let window = check_window(window)?.address();
        Self::with(gpu, (CodecKind::Bf16, Learned::window_at(window)), target, bytes, given)
    }

    fn with(
        gpu: &Gpu,
        (kind, learned): (CodecKind, Learned),
        target: Target,
        bytes: u64,
        given: BufferMemory<'a>,
    ) -> Result<Self, Error> {
        let entries = bytes / ENTRY_BYTES as u64;
        if !bytes.is_multiple_of(ENTRY_BYTES as u64) || entries > u64::from(u32::MAX) {
            return Err(Error::Bytes { offset: 0, bytes, length: u64::from(u32::MAX) * ENTRY_BYTES as u64 });
        }
        let room = BufferBytes::of(target, bytes);
        let fits = |span: DeviceSpan<'_>, least: u64, need: &'static str| match span.check(1, ALIGN, need) {
            Ok(span) if span.bytes() >= least => Ok(span.address()),
            _ => Err(Error::Shape { bytes: span.bytes(), address: span.address(), need }),
        };
        let device = fits(given.device, room.device, "the device memory of `BufferBytes`, aligned to 128")?;
        let nibbles = fits(given.metadata, room.metadata, "the metadata of `BufferBytes`, aligned to 128")?;
        let buddy = fits(given.overflow, room.overflow, "the overflow of `BufferBytes`, aligned to 128")?;
        let memory = Memory {
            device,
            buddy,
            nibbles,
            pages: 0,
            fault: nibbles + room.metadata - FAULT_BYTES,
            entries,
            device_bytes: target.device_bytes() as u32,
            reserved: 0,
        };
        let view = BuddyView { memory, params: learned.params() };
        let (kernels, metadata) = (gpu.codec(kind)?, given.metadata.part(0..room.metadata));
        Ok(Self { gpu: gpu.clone(), kernels, view, _learned: learned, metadata, memory: PhantomData })
    }

    /// Fills the buffer with zeros, in stream order.
    ///
    /// # Errors
    /// A driver error.
    pub fn clear(&self, on: &CudaStream) -> Result<(), Error> {
        self.gpu.alive()?;
        let end = self.metadata.bytes();
        let (nibbles, fault) =
            (self.metadata.part(0..end - FAULT_BYTES), self.metadata.part(end - FAULT_BYTES..end));
        self.gpu.check("clear the metadata", driver::fill(on, nibbles, 0).and(driver::fill(on, fault, 0xff)))
    }

    /// Returns the number of entries.
    pub fn entries(&self) -> u64 {
        self.view.memory.entries
    }

    /// Compresses `from` into the entries from `first` on.
    ///
    /// # Errors
    /// [`Error::Range`], [`Error::Shape`], or a driver error.
    pub fn write(&self, on: &CudaStream, first: u64, from: DeviceSpan<'_>) -> Result<(), Error> {
        let Some(from) = self.check(first, from)? else { return Ok(()) };
        self.gpu.check("start writing", self.kernels.write(on, &self.view, from, first))
    }

    /// Decompresses the entries from `first` on into `to`. An entry that fails to decode reads as
    /// zeros.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn read(&self, on: &CudaStream, first: u64, to: DeviceSpan<'_>) -> Result<(), Error> {
        let Some(to) = self.check(first, to)? else { return Ok(()) };
        self.gpu.check("start reading", self.kernels.read(on, &self.view, to, first))
    }

    /// Reads like [`read`](Self::read) and waits for the stream: an entry that fails to decode is
    /// an error.
    ///
    /// # Errors
    /// [`Error::Fault`] with the lowest entry that failed to decode; otherwise as for
    /// [`write`](Self::write).
    pub fn read_checked(&self, on: &CudaStream, first: u64, to: DeviceSpan<'_>) -> Result<(), Error> {
        let end = self.metadata.bytes();
        let fault = self.metadata.part(end - FAULT_BYTES..end);
        self.gpu.alive()?;
        self.gpu.check("clear the fault", driver::fill(on, fault, 0xff))?;
        self.read(on, first, to)?;
        let found = self.gpu.check("read the fault", driver::read_number(on, fault.address()))?;
        Fault::checked(Fault::from_bits(found))
    }

    /// Returns the argument for your own kernels. If the window is in device memory, they call
    /// `settle<Bf16>` first.
    pub fn view(&self) -> BuddyView {
        self.view
    }

    /// Returns the span, or `None` if it is empty.
    fn check<'b>(&self, first: u64, plain: DeviceSpan<'b>) -> Result<Option<DeviceSpan<'b>>, Error> {
        self.gpu.alive()?;
        let entries = plain.check_entries()?.entries();
        let end = first.saturating_add(entries);
        if end > self.entries() {
            return Err(Error::Range { first, end, entries: self.entries() });
        }
        Ok((entries > 0).then_some(plain))
    }
}

/// Checks the memory of a window, a 32-bit number.
pub(crate) fn check_window(window: DeviceSpan<'_>) -> Result<DeviceSpan<'_>, Error> {
    window.check(4, 4, "one 32-bit number for the window").and_then(|window| match window.bytes() {
        4 => Ok(window),
        bytes => {
            Err(Error::Shape { bytes, address: window.address(), need: "one 32-bit number for the window" })
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_sizes_follow_the_address_map() {
        let room = BufferBytes::of(Target::X4Over3, 100 * 128);
        assert_eq!(room, BufferBytes { device: 128 * 96, metadata: 128 + 128, overflow: 128 * 32 });
        assert_eq!(BufferBytes::of(Target::X1, 128).overflow, 0);
    }
}
