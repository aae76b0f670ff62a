//! Device memory that the GPU itself may compress: `CU_MEM_ALLOCATION_COMP_GENERIC`.

use buddy_cuda::{DeviceSpan, Gpu};
use cudarc::driver::{
    CudaContext, DriverError,
    sys::{self, CUmemAllocationProp, CUmemAllocationType, CUmemLocationType},
};

use crate::Error;

/// `CU_MEM_ALLOCATION_COMP_GENERIC` of the driver's header.
const GENERIC: u8 = 1;

/// Compressible device memory at an address range of its own, freed when dropped.
pub(super) struct CompressibleMemory {
    address: u64,
    bytes: usize,
    handle: Option<sys::CUmemGenericAllocationHandle>,
    is_mapped: bool,
}

impl CompressibleMemory {
    /// Allocates at least `bytes` of memory on a GPU. Returns `None` if
    /// the driver gives memory without compression.
    ///
    /// # Errors
    /// A driver error.
    pub(super) fn new(gpu: &Gpu, context: &CudaContext, bytes: u64) -> Result<Option<Self>, Error> {
        let made = context.bind_to_thread().and_then(|()| Self::allocate(context.ordinal(), bytes));
        Ok(gpu.check("allocate compressible memory", made)?)
    }

    fn allocate(ordinal: usize, bytes: u64) -> Result<Option<Self>, DriverError> {
        let properties = properties(ordinal);
        let mut step = 0;
        let minimum = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        // SAFETY: the driver reads the properties and writes one number.
        unsafe { sys::cuMemGetAllocationGranularity(&mut step, &properties, minimum) }.result()?;
        let bytes = (bytes as usize).next_multiple_of(step.max(1));
        let mut memory = Self { address: 0, bytes, handle: None, is_mapped: false };
        // SAFETY: the driver writes one address; the range is freed by `drop`.
        unsafe { sys::cuMemAddressReserve(&mut memory.address, bytes, 0, 0, 0) }.result()?;
        let mut handle = 0;
        // SAFETY: the driver reads the properties and writes one handle, which `drop` releases.
        unsafe { sys::cuMemCreate(&mut handle, bytes, &properties, 0) }.result()?;
        memory.handle = Some(handle);
        let mut given = properties;
        // SAFETY: the handle is valid; the driver writes its properties.
        unsafe { sys::cuMemGetAllocationPropertiesFromHandle(&mut given, handle) }.result()?;
        if given.allocFlags.compressionType != GENERIC {
            return Ok(None);
        }
        // SAFETY: the range was reserved with these bytes, and the handle has as many.
        unsafe { sys::cuMemMap(memory.address, bytes, 0, handle, 0) }.result()?;
        memory.is_mapped = true;
        let access = sys::CUmemAccessDesc {
            location: properties.location,
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: the whole range is mapped; the driver reads one description.
        unsafe { sys::cuMemSetAccess(memory.address, bytes, &access, 1) }.result()?;
        Ok(Some(memory))
    }

    /// Returns the first `bytes` of the memory.
    pub(super) fn span(&self, bytes: u64) -> DeviceSpan<'_> {
        // SAFETY: the GPU may read and write the whole range until `self` is dropped.
        unsafe { DeviceSpan::from_raw(self.address, self.bytes as u64) }.part(0..bytes)
    }
}

impl Drop for CompressibleMemory {
    fn drop(&mut self) {
        // An error cannot be told here, and the process frees what is left.
        // SAFETY: each call undoes one that succeeded, in reverse order; measurements have waited
        // for their kernels.
        unsafe {
            if self.is_mapped {
                let _ = sys::cuMemUnmap(self.address, self.bytes);
            }
            if let Some(handle) = self.handle {
                let _ = sys::cuMemRelease(handle);
            }
            if self.address != 0 {
                let _ = sys::cuMemAddressFree(self.address, self.bytes);
            }
        }
    }
}

/// Describes compressible memory of a GPU.
fn properties(ordinal: usize) -> CUmemAllocationProp {
    // SAFETY: a C struct of numbers and a pointer, for which zero is valid, as the driver's
    // documentation asks.
    let mut properties: CUmemAllocationProp = unsafe { std::mem::zeroed() };
    properties.type_ = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = ordinal as i32;
    properties.allocFlags.compressionType = GENERIC;
    properties
}
