//! Plain device memory: what compressed buffers are written from and read into.

use std::{marker::PhantomData, ops::Range};

use buddy_core::ENTRY_BYTES;
use cudarc::driver::{CudaStream, DriverError};

use crate::{
    Error, Gpu,
    driver::{self, Region},
};

/// Device memory that is owned, freed when dropped.
#[derive(Debug)]
pub struct DeviceBytes {
    gpu: Gpu,
    region: Region,
}

/// A range of device memory that someone owns for as long.
#[derive(Debug, Clone, Copy)]
pub struct DeviceSpan<'a> {
    address: u64,
    bytes: u64,
    owner: PhantomData<&'a DeviceBytes>,
}

impl DeviceBytes {
    /// Takes device memory; what it holds is anything.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`] with what is free.
    pub fn new(gpu: &Gpu, bytes: u64) -> Result<Self, Error> {
        Ok(Self { gpu: gpu.clone(), region: gpu.device_region(bytes)? })
    }

    /// The bytes that were asked for.
    pub fn len(&self) -> u64 {
        self.region.bytes()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of it, to read from or to write to.
    pub fn all(&self) -> DeviceSpan<'_> {
        DeviceSpan { address: self.region.address(), bytes: self.len(), owner: PhantomData }
    }

    /// A range of it.
    ///
    /// # Panics
    /// If the range ends past the memory.
    pub fn span(&self, range: Range<u64>) -> DeviceSpan<'_> {
        self.all().part(range)
    }

    /// Copies bytes to the start, and waits.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Panics
    /// If there are more than it has.
    pub fn upload(&self, bytes: &[u8]) -> Result<(), Error> {
        self.gpu.alive()?;
        self.gpu.check("copy to the GPU", self.region.upload(0, bytes))
    }

    /// Copies from the start, and waits.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Panics
    /// If more is asked for than it has.
    pub fn download(&self, bytes: &mut [u8]) -> Result<(), Error> {
        self.gpu.alive()?;
        self.gpu.check("copy from the GPU", self.region.download(0, bytes))
    }

    /// Sets every byte to zero when the stream gets there.
    pub(crate) fn clear_on(&self, stream: &CudaStream) -> Result<(), DriverError> {
        self.region.fill_on(stream, 0, self.len(), 0)
    }

    /// Sets every byte, and waits.
    ///
    /// # Errors
    /// What the driver says.
    pub fn fill(&self, value: u8) -> Result<(), Error> {
        self.gpu.alive()?;
        self.gpu.check("fill memory", self.region.fill(0, self.len(), value))
    }
}

impl DeviceSpan<'_> {
    /// Memory that something else owns, such as a tensor of another library.
    ///
    /// # Safety
    /// The bytes are memory that this GPU may read and write for as long as the span, and all work
    /// that is started with it, lasts.
    pub unsafe fn from_raw(address: u64, bytes: u64) -> Self {
        Self { address, bytes, owner: PhantomData }
    }

    /// Where it begins, as the GPU sees it.
    pub fn address(self) -> u64 {
        self.address
    }

    /// Its length in bytes.
    pub fn bytes(self) -> u64 {
        self.bytes
    }

    /// How many whole entries.
    pub fn entries(self) -> u64 {
        self.bytes / ENTRY_BYTES as u64
    }

    /// A range of it.
    ///
    /// # Panics
    /// If the range ends past the span.
    pub fn part(self, range: Range<u64>) -> Self {
        assert!(range.start <= range.end && range.end <= self.bytes, "{range:?} of {} bytes", self.bytes);
        Self { address: self.address + range.start, bytes: range.end - range.start, ..self }
    }

    /// Fails unless the driver knows all of it as memory that the GPU reaches.
    ///
    /// # Errors
    /// [`Error::Shape`] for memory of the host, or for memory that ends before the span does.
    pub fn check_reach(self) -> Result<Self, Error> {
        let need = match driver::reach(self.address, self.bytes) {
            reach if reach >= self.bytes => return Ok(self),
            0 => "memory of the GPU",
            _ => "memory of the GPU to its end; the allocation that it begins in ends before it",
        };
        Err(Error::Shape { bytes: self.bytes, address: self.address, need })
    }

    /// Fails unless this is whole entries, aligned for the widest access.
    ///
    /// # Errors
    /// [`Error::Shape`] for anything else.
    pub fn check_entries(self) -> Result<Self, Error> {
        self.check(ENTRY_BYTES as u64, 16, "whole entries of 128 bytes, aligned to 16")
    }

    /// Fails unless this is a multiple of so many bytes at a multiple of `align`; `need` says so in
    /// words.
    ///
    /// # Errors
    /// [`Error::Shape`] with `need`.
    pub fn check(self, size: u64, align: u64, need: &'static str) -> Result<Self, Error> {
        if self.bytes.is_multiple_of(size) && self.address.is_multiple_of(align) {
            return Ok(self);
        }
        Err(Error::Shape { bytes: self.bytes, address: self.address, need })
    }
}
