//! Kernel launches: grid, shared memory, arguments.

use std::ffi::c_void;

use cudarc::driver::{CudaFunction, CudaStream, DeviceRepr, DriverError, sys};

/// Dynamic shared memory that needs no attribute.
const USUAL_SHARED: u32 = 48 << 10;

/// The arguments of a launch: a tuple, in the order of the kernel's parameters.
pub trait Arguments {
    /// Returns the address of each argument, for `cuLaunchKernelEx`.
    fn places(&self) -> Vec<*mut c_void>;
}

macro_rules! arguments {
    ($($name:ident)*) => {
        impl<$($name: DeviceRepr),*> Arguments for ($($name,)*) {
            #[allow(non_snake_case)]
            fn places(&self) -> Vec<*mut c_void> {
                let ($($name,)*) = self;
                vec![$(std::ptr::from_ref($name).cast_mut().cast()),*]
            }
        }
    };
}
arguments!();
arguments!(A);
arguments!(A B);
arguments!(A B C);
arguments!(A B C D);
arguments!(A B C D E);
arguments!(A B C D E F);
arguments!(A B C D E F G);

/// Allows a kernel `shared` bytes of shared memory, of which its static variables take a part.
pub(crate) fn allow(kernel: &CudaFunction, shared: u32) -> Result<(), DriverError> {
    let most = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    kernel.set_attribute(most, shared as i32 - kernel.shared_size_bytes()?)
}

/// The grid of a launch.
#[derive(Debug, Clone, Copy)]
pub struct Launch {
    /// Blocks in x and y.
    pub blocks: (u32, u32),
    /// Threads of a block, in x.
    pub threads: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub shared: u32,
    /// Programmatic dependent launch: may begin while the preceding kernel ends.
    pub overlaps: bool,
    /// CTAs of a cluster, if the kernel does not state it; 1 for none.
    pub cluster: u32,
}

impl Launch {
    /// Creates a launch that waits for the preceding kernel.
    pub fn new(blocks: (u32, u32), threads: u32, shared: u32) -> Self {
        Self { blocks, threads, shared, overlaps: false, cluster: 1 }
    }

    /// Creates a one-dimensional grid without dynamic shared memory.
    ///
    /// # Panics
    /// For 2^32 blocks or more.
    pub fn row(blocks: u64, threads: u32) -> Self {
        Self::new((u32::try_from(blocks).expect("fewer than 2^32 blocks"), 1), threads, 0)
    }

    /// Enqueues a kernel on a stream.
    ///
    /// # Errors
    /// A driver error.
    ///
    /// # Safety
    /// The arguments match the kernel's parameters in number, order and type. Every address among
    /// them stays valid until the stream has passed the kernel. A kernel that `overlaps`
    /// synchronises with its predecessor itself.
    pub unsafe fn start(
        self,
        stream: &CudaStream,
        kernel: &CudaFunction,
        arguments: &impl Arguments,
    ) -> Result<(), DriverError> {
        if self.shared > USUAL_SHARED {
            allow(kernel, self.shared)?;
        }
        // SAFETY: the caller's promise.
        unsafe { self.start_allowed(stream, kernel, arguments) }
    }

    /// [`start`](Self::start) for a kernel that was [allowed](allow) its shared memory.
    ///
    /// # Errors
    /// A driver error.
    ///
    /// # Safety
    /// As for [`start`](Self::start).
    pub(crate) unsafe fn start_allowed(
        self,
        stream: &CudaStream,
        kernel: &CudaFunction,
        arguments: &impl Arguments,
    ) -> Result<(), DriverError> {
        let overlap = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let cluster = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue {
                clusterDim: sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x: self.cluster, y: 1, z: 1 },
            },
        };
        let mut attributes = [overlap; 2];
        let mut count = usize::from(self.overlaps);
        if self.cluster > 1 {
            attributes[count] = cluster;
            count += 1;
        }
        let config = sys::CUlaunchConfig {
            gridDimX: self.blocks.0,
            gridDimY: self.blocks.1,
            gridDimZ: 1,
            blockDimX: self.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: self.shared,
            hStream: stream.cu_stream(),
            attrs: attributes.as_mut_ptr(),
            numAttrs: count as u32,
        };
        stream.context().bind_to_thread()?;
        let (function, mut places) = (kernel.cu_function(), arguments.places());
        // SAFETY: the caller's promise; the driver reads the arguments before it returns.
        unsafe { sys::cuLaunchKernelEx(&config, function, places.as_mut_ptr(), std::ptr::null_mut()) }
            .result()
    }
}
