//! Plain device memory, the source and destination of compressed buffers.

use std::{marker::PhantomData, ops::Range};

use buddy_core::ENTRY_BYTES;
use cudarc::driver::{CudaStream, DriverError};

use crate::{
    Error, Gpu,
    driver::{self, Region},
};

/// Owned device memory, freed when dropped.
#[derive(Debug)]
pub struct DeviceBytes {
    gpu: Gpu,
    region: Region,
}

/// A range of device memory, borrowed from its owner.
#[derive(Debug, Clone, Copy)]
pub struct DeviceSpan<'a> {
    address: u64,
    bytes: u64,
    owner: PhantomData<&'a DeviceBytes>,
}

impl DeviceBytes {
    /// Allocates device memory, uninitialised.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`] with the free bytes.
    pub fn new(gpu: &Gpu, bytes: u64) -> Result<Self, Error> {
        Ok(Self { gpu: gpu.clone(), region: gpu.device_region(bytes)? })
    }

    /// Returns the requested size.
    pub fn len(&self) -> u64 {
        self.region.bytes()
    }

    /// Returns true for zero bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a span of all bytes.
    pub fn all(&self) -> DeviceSpan<'_> {
        DeviceSpan { address: self.region.address(), bytes: self.len(), owner: PhantomData }
    }

    /// Returns a span of a range.
    ///
    /// # Panics
    /// If the range ends past the memory.
    pub fn span(&self, range: Range<u64>) -> DeviceSpan<'_> {
        self.all().part(range)
    }

    /// Copies host bytes to the start, and waits.
    ///
    /// # Errors
    /// A driver error.
    ///
    /// # Panics
    /// If `bytes` is longer than the memory.
    pub fn upload(&self, bytes: &[u8]) -> Result<(), Error> {
        self.gpu.alive()?;
        self.gpu.check("copy to the GPU", self.region.upload(0, bytes))
    }

    /// Copies the start to host bytes, and waits.
    ///
    /// # Errors
    /// A driver error.
    ///
    /// # Panics
    /// If `bytes` is longer than the memory.
    pub fn download(&self, bytes: &mut [u8]) -> Result<(), Error> {
        self.gpu.alive()?;
        self.gpu.check("copy from the GPU", self.region.download(0, bytes))
    }

    /// Zeroes all bytes, in stream order.
    pub(crate) fn clear_on(&self, stream: &CudaStream) -> Result<(), DriverError> {
        self.region.fill_on(stream, 0, self.len(), 0)
    }

    /// Sets every byte, and waits.
    ///
    /// # Errors
    /// A driver error.
    pub fn fill(&self, value: u8) -> Result<(), Error> {
        self.gpu.alive()?;
        self.gpu.check("fill memory", self.region.fill(0, self.len(), value))
    }
}

impl DeviceSpan<'_> {
    /// Wraps memory that something else owns, such as a tensor of another library.
    ///
    /// # Safety
    /// This GPU may read and write the bytes for as long as the span, and all work started with it,
    /// lasts.
    pub unsafe fn from_raw(address: u64, bytes: u64) -> Self {
        Self { address, bytes, owner: PhantomData }
    }

    /// Returns the GPU's address of the first byte.
    pub fn address(self) -> u64 {
        self.address
    }

    /// Returns the length in bytes.
    pub fn bytes(self) -> u64 {
        self.bytes
    }

    /// Returns the number of whole entries.
    pub fn entries(self) -> u64 {
        self.bytes / ENTRY_BYTES as u64
    }

    /// Returns a part of the span.
    ///
    /// # Panics
    /// If the range ends past the span.
    pub fn part(self, range: Range<u64>) -> Self {
        assert!(range.start <= range.end && range.end <= self.bytes, "{range:?} of {} bytes", self.bytes);
        Self { address: self.address + range.start, bytes: range.end - range.start, ..self }
    }

    /// Fails unless the driver knows the whole span as memory that the GPU can access.
    ///
    /// # Errors
    /// [`Error::Shape`] for host memory, or for memory that ends before the span does.
    pub fn check_reach(self) -> Result<Self, Error> {
        let need = match driver::reach(self.address, self.bytes) {
            reach if reach >= self.bytes => return Ok(self),
            0 => "memory of the GPU",
            _ => "memory of the GPU to its end; the allocation that it begins in ends before it",
        };
        Err(Error::Shape { bytes: self.bytes, address: self.address, need })
    }

    /// Fails unless the span is whole entries, aligned for the widest access.
    ///
    /// # Errors
    /// [`Error::Shape`] for anything else.
    pub fn check_entries(self) -> Result<Self, Error> {
        self.check(ENTRY_BYTES as u64, 16, "whole entries of 128 bytes, aligned to 16")
    }

    /// Fails unless the length is a multiple of `size` and the address one of `align`; `need` says
    /// so in the error's message.
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
