//! Properties of the GPUs.

use cudarc::driver::{
    CudaContext,
    sys::{CUdevice_attribute as Attribute, CUresult},
};
use serde::{Deserialize, Serialize};

use crate::{Error, Gpu, driver, error::reason};

/// Properties of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    /// The vendor's name.
    pub name: String,
    /// Compute capability, such as (9, 0).
    pub capability: (u32, u32),
    /// SMs, 132 on an H200.
    pub multiprocessors: u32,
    /// Highest SM clock.
    pub clock_khz: u32,
    /// Total device memory.
    pub memory_bytes: u64,
    /// Free device memory.
    pub free_bytes: u64,
    /// L2 cache.
    pub l2_bytes: u64,
    /// True if the GPU can access pinned host memory.
    pub maps_host_memory: bool,
    /// CUDA version of the driver, such as 13000.
    pub driver: u32,
    /// True if kernels can be compiled here.
    pub compiler: bool,
}

impl Gpu {
    /// Returns the properties of this GPU.
    ///
    /// # Errors
    /// A driver error.
    pub fn info(&self) -> Result<Info, Error> {
        let context = self.context()?;
        let number = |attribute| {
            self.check("describe the GPU", context.attribute(attribute)).map(|value| value as u32)
        };
        let (free, total) = self.check("count its memory", context.mem_get_info())?;
        Ok(Info {
            name: self.check("name the GPU", context.name())?,
            capability: (
                number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            multiprocessors: self.multiprocessors(),
            clock_khz: number(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?,
            memory_bytes: total as u64,
            free_bytes: free as u64,
            l2_bytes: u64::from(number(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?),
            maps_host_memory: number(Attribute::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY)? != 0,
            driver: self.driver(),
            compiler: driver::has_compiler(),
        })
    }
}

/// Lists the architectures of the GPUs, such as 90, each once. Creates no context.
///
/// # Errors
/// [`Error::NoDriver`], [`Error::NoGpu`], or a driver error.
pub fn architectures() -> Result<Vec<u32>, Error> {
    driver::usable()?;
    let count = match CudaContext::device_count() {
        Ok(count) => count,
        Err(error) if error.0 == CUresult::CUDA_ERROR_NO_DEVICE => 0,
        Err(error) => return Err(Error::Driver { what: "start", reason: reason(error) }),
    };
    if count == 0 {
        return Err(Error::NoGpu { ordinal: 0, count: 0 });
    }
    let mut all = Vec::new();
    for ordinal in 0..count {
        let found = driver::architecture(ordinal);
        all.push(found.map_err(|error| Error::Driver { what: "describe the GPU", reason: reason(error) })?);
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}
