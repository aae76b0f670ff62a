//! Owned memory that the GPU can access.

use std::{ptr, sync::Arc};

use cudarc::driver::{CudaContext, CudaStream, DriverError, result, sys};

/// Memory that the GPU can access, freed when dropped.
#[derive(Debug)]
pub(crate) struct Region {
    context: Arc<CudaContext>,
    address: u64,
    bytes: u64,
    /// Host address, if this is pinned host memory.
    host: Option<*mut u8>,
}

// SAFETY: the region is plain memory that no thread owns; driver calls work from any thread that
// has bound the context, as every function here does.
unsafe impl Send for Region {}
// SAFETY: likewise; the host's view is touched only when the context is idle, or by single volatile
// reads.
unsafe impl Sync for Region {}

impl Region {
    /// Allocates device memory, uninitialised.
    pub(crate) fn device(context: &Arc<CudaContext>, bytes: u64) -> Result<Self, DriverError> {
        context.bind_to_thread()?;
        // SAFETY: the memory is only passed to kernels and copies, never read as a type.
        let address = unsafe { result::malloc_sync(bytes.max(1) as usize) }?;
        Ok(Self { context: context.clone(), address, bytes, host: None })
    }

    /// Allocates zeroed pinned host memory, mapped to a GPU address.
    pub(crate) fn pinned(context: &Arc<CudaContext>, bytes: u64) -> Result<Self, DriverError> {
        context.bind_to_thread()?;
        let flags = sys::CU_MEMHOSTALLOC_DEVICEMAP | sys::CU_MEMHOSTALLOC_PORTABLE;
        // SAFETY: as for device memory; the bytes are initialised below.
        let host = unsafe { result::malloc_host(bytes.max(1) as usize, flags) }?;
        let mut address = 0;
        // SAFETY: `host` is mapped, as asked; the driver writes one address.
        let mapped = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut address, host, 0) }.result();
        let region = Self { context: context.clone(), address, bytes, host: Some(host.cast()) };
        mapped?;
        // SAFETY: the allocation has these bytes and is not shared yet.
        unsafe { ptr::write_bytes(host.cast::<u8>(), 0, bytes as usize) };
        Ok(region)
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Copies bytes in, and waits: the driver call alone may return before the last bytes arrive,
    /// and streams would not wait for them.
    pub(crate) fn upload(&self, offset: u64, bytes: &[u8]) -> Result<(), DriverError> {
        self.assert_holds(offset, bytes.len() as u64);
        self.context.synchronize()?;
        match self.host {
            Some(host) => {
                // SAFETY: the range is inside the region, and the GPU is done with it.
                unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), host.add(offset as usize), bytes.len()) };
                Ok(())
            }
            None => {
                // SAFETY: the range is inside the region.
                unsafe { result::memcpy_htod_sync(self.address + offset, bytes) }?;
                self.context.synchronize()
            }
        }
    }

    /// Copies bytes out, and waits.
    pub(crate) fn download(&self, offset: u64, bytes: &mut [u8]) -> Result<(), DriverError> {
        self.assert_holds(offset, bytes.len() as u64);
        self.context.synchronize()?;
        match self.host {
            Some(host) => {
                // SAFETY: the range is inside the region, and the GPU is done with it.
                unsafe {
                    ptr::copy_nonoverlapping(host.add(offset as usize), bytes.as_mut_ptr(), bytes.len())
                };
                Ok(())
            }
            // SAFETY: the range is inside the region.
            None => unsafe { result::memcpy_dtoh_sync(bytes, self.address + offset) },
        }
    }

    /// Sets bytes, and waits, which the driver call alone does not.
    pub(crate) fn fill(&self, offset: u64, bytes: u64, value: u8) -> Result<(), DriverError> {
        self.assert_holds(offset, bytes);
        self.context.synchronize()?;
        match self.host {
            Some(host) => {
                // SAFETY: the range is inside the region, and the GPU is done with it.
                unsafe { ptr::write_bytes(host.add(offset as usize), value, bytes as usize) };
                Ok(())
            }
            None => {
                // SAFETY: the range is inside the region.
                unsafe { result::memset_d8_sync(self.address + offset, value, bytes as usize) }?;
                self.context.synchronize()
            }
        }
    }

    /// Sets bytes in stream order.
    pub(crate) fn fill_on(
        &self,
        stream: &CudaStream,
        offset: u64,
        bytes: u64,
        value: u8,
    ) -> Result<(), DriverError> {
        self.assert_holds(offset, bytes);
        self.context.bind_to_thread()?;
        // SAFETY: the range is inside the region, which is freed only after all work on it.
        unsafe { result::memset_d8_async(self.address + offset, value, bytes as usize, stream.cu_stream()) }
    }

    /// Copies to pinned memory in stream order.
    pub(crate) fn copy_on(
        &self,
        stream: &CudaStream,
        offset: u64,
        to: &Self,
        bytes: u64,
    ) -> Result<(), DriverError> {
        self.assert_holds(offset, bytes);
        to.assert_holds(0, bytes);
        let host = to.host.expect("the copy goes to pinned memory");
        self.context.bind_to_thread()?;
        // SAFETY: both ranges are inside their regions, which are freed only after all work on
        // them.
        unsafe {
            sys::cuMemcpyDtoHAsync_v2(host.cast(), self.address + offset, bytes as usize, stream.cu_stream())
        }
        .result()
    }

    /// Copies from pinned memory in stream order.
    pub(crate) fn send_on(&self, stream: &CudaStream, to: &Self, bytes: u64) -> Result<(), DriverError> {
        self.assert_holds(0, bytes);
        to.assert_holds(0, bytes);
        let host = self.host.expect("the copy comes from pinned memory");
        self.context.bind_to_thread()?;
        // SAFETY: both ranges are inside their regions, which are freed only after all work on
        // them.
        unsafe { sys::cuMemcpyHtoDAsync_v2(to.address, host.cast(), bytes as usize, stream.cu_stream()) }
            .result()
    }

    /// Copies device memory to pinned memory in stream order.
    pub(crate) fn receive_on(
        &self,
        stream: &CudaStream,
        offset: u64,
        from: u64,
        bytes: u64,
    ) -> Result<(), DriverError> {
        self.assert_holds(offset, bytes);
        let host = self.host.expect("the copy goes to pinned memory");
        self.context.bind_to_thread()?;
        // SAFETY: the range is inside the region; `from` is inside a span, which its owner keeps
        // alive.
        unsafe {
            let to = host.add(offset as usize).cast();
            sys::cuMemcpyDtoHAsync_v2(to, from, bytes as usize, stream.cu_stream())
        }
        .result()
    }

    /// Writes numbers to the start of pinned memory that the GPU is done with.
    pub(crate) fn put(&self, numbers: &[u64]) {
        self.assert_holds(0, 8 * numbers.len() as u64);
        let host = self.host.expect("only pinned memory has a host's view").cast::<u64>();
        // SAFETY: the numbers fit the region, and the caller states that the GPU is done with it.
        unsafe { ptr::copy_nonoverlapping(numbers.as_ptr(), host, numbers.len()) };
    }

    /// Reads a number that the GPU may be writing; returns the old or the new value.
    pub(crate) fn peek(&self, index: usize) -> u64 {
        self.assert_holds(8 * index as u64, 8);
        let host = self.host.expect("only pinned memory has a host's view").cast::<u64>();
        // SAFETY: the number is inside the region; aligned 8-byte accesses are atomic on every CUDA
        // host.
        unsafe { ptr::read_volatile(host.add(index)) }
    }

    fn assert_holds(&self, offset: u64, bytes: u64) {
        assert!(
            offset <= self.bytes && bytes <= self.bytes - offset,
            "{bytes} bytes at {offset} of {}",
            self.bytes
        );
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // A failure here cannot be reported, and must not surface in the next call.
        let _ = self.context.bind_to_thread();
        let freed = match self.host {
            // SAFETY: allocated by `pinned`, freed once; the call waits for the GPU's work on it.
            Some(host) => unsafe { result::free_host(host.cast()) },
            // SAFETY: allocated by `device`, freed once; the call waits likewise.
            None => unsafe { result::free_sync(self.address) },
        };
        let _ = freed;
    }
}
