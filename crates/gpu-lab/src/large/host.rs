//! Pinned host memory of tens of gigabytes: mapped in huge pages, touched by all cores, then
//! registered, which takes a tenth of the time of the driver's own allocation.

use buddy_cuda::Gpu;
use cudarc::driver::sys;
use memmap2::{Advice, MmapMut};
use rayon::prelude::*;

use crate::Error;

/// Host memory that the GPU can access while this lives.
pub(super) struct HostBytes {
    gpu: Gpu,
    map: MmapMut,
    address: u64,
}

impl HostBytes {
    pub(super) fn new(gpu: &Gpu, bytes: u64) -> Result<Self, Error> {
        let refused = |why: String| Error::HostMemory { bytes, why };
        let mut map = MmapMut::map_anon(bytes.max(1) as usize).map_err(|error| refused(error.to_string()))?;
        // Huge pages register faster; small ones work too.
        let _ = map.advise(Advice::HugePage);
        map.par_chunks_mut(1 << 26).for_each(|part| part.iter_mut().step_by(4096).for_each(|byte| *byte = 0));
        let flags = sys::CU_MEMHOSTREGISTER_DEVICEMAP | sys::CU_MEMHOSTREGISTER_PORTABLE;
        let mut address = 0;
        let (at, length) = (map.as_mut_ptr().cast(), map.len());
        // SAFETY: the mapping has these bytes and outlives the registration, which `drop` ends; the
        // driver writes one address.
        let registered = unsafe {
            sys::cuMemHostRegister_v2(at, length, flags)
                .result()
                .and_then(|()| sys::cuMemHostGetDevicePointer_v2(&mut address, at, 0).result())
        };
        gpu.check("pin host memory", registered).map_err(|error| refused(error.to_string()))?;
        Ok(Self { gpu: gpu.clone(), map, address })
    }

    /// Returns the GPU's address.
    pub(super) fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for HostBytes {
    fn drop(&mut self) {
        // SAFETY: registered by `new`, once; the call waits for the GPU's work on it.
        let ended = unsafe { sys::cuMemHostUnregister(self.map.as_mut_ptr().cast()) }.result();
        let _ = self.gpu.check("unpin host memory", ended);
    }
}
