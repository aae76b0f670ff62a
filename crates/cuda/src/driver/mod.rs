//! Everything unsafe: calls of the driver and of the compiler, each behind a function that keeps its conditions.

mod compiler;
mod current;
mod region;
mod vendor;

use std::ffi::c_void;

use cudarc::driver::{CudaFunction, CudaStream, DeviceRepr, DriverError, result, sys};

pub(crate) use compiler::{compile, has_compiler};
pub(crate) use current::{Current, borrow_context, current, reaches};
pub(crate) use region::Region;
pub(crate) use vendor::Vendor;

use crate::{
    bytes::DeviceSpan,
    layout::{BuddyView, Memory},
    source::Params,
};

// SAFETY: plain numbers in C layout, the same struct as in `map.cuh`; a test compares the sizes.
unsafe impl DeviceRepr for Memory {}
// SAFETY: likewise, the struct of `bits.cuh`.
unsafe impl DeviceRepr for Params {}
// SAFETY: likewise, the struct of `entry.cuh`.
unsafe impl DeviceRepr for BuddyView {}

/// Whether the driver's library can be loaded.
pub(crate) fn has_driver() -> bool {
    // SAFETY: loading libcuda runs only its own initialisers.
    unsafe { sys::is_culib_present() }
}

/// The driver's version, such as 13000.
pub(crate) fn version() -> Result<i32, DriverError> {
    let mut version = 0;
    // SAFETY: the driver writes one number to where it is told.
    unsafe { sys::cuDriverGetVersion(&mut version) }.result()?;
    Ok(version)
}

/// Lets a kernel have this much shared memory at its launch.
pub(crate) fn allow_shared(kernel: &CudaFunction, bytes: u32) -> Result<(), DriverError> {
    let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    kernel.set_attribute(attribute, bytes as i32)
}

/// Copies from one span to another when the stream gets there, as far as the shorter one reaches.
pub(crate) fn copy(stream: &CudaStream, from: DeviceSpan<'_>, to: DeviceSpan<'_>) -> Result<(), DriverError> {
    stream.context().bind_to_thread()?;
    let bytes = from.bytes().min(to.bytes()) as usize;
    // SAFETY: both spans are memory of this GPU for as long as the work on them lasts.
    unsafe { result::memcpy_dtod_async(to.address(), from.address(), bytes, stream.cu_stream()) }
}

/// Arguments of a launch, in order.
pub(crate) trait Arguments {
    /// Where each of them is.
    fn places(&self) -> Vec<*mut c_void>;
}

macro_rules! arguments {
    ($($name:ident),+) => {
        impl<$($name: DeviceRepr),+> Arguments for ($($name,)+) {
            #[allow(non_snake_case)]
            fn places(&self) -> Vec<*mut c_void> {
                let ($($name,)+) = self;
                vec![$(std::ptr::from_ref($name).cast_mut().cast()),+]
            }
        }
    };
}

impl Arguments for () {
    fn places(&self) -> Vec<*mut c_void> {
        Vec::new()
    }
}
arguments!(A);
arguments!(A, B);
arguments!(A, B, C);
arguments!(A, B, C, D);
arguments!(A, B, C, D, E);
arguments!(A, B, C, D, E, F);
arguments!(A, B, C, D, E, F, G);

/// Starts a kernel when the stream gets there.
///
/// # Safety
/// The arguments are the kernel's, in number, order and type. Every address among them is valid for what the
/// kernel does there until the stream has passed it.
pub(crate) unsafe fn launch(
    stream: &CudaStream,
    kernel: &CudaFunction,
    blocks: u64,
    threads: u32,
    arguments: &impl Arguments,
) -> Result<(), DriverError> {
    let blocks = (u32::try_from(blocks).expect("fewer than 2^32 blocks"), 1);
    // SAFETY: the caller's promise.
    unsafe { launch_grid(stream, kernel, Launch::new(blocks, threads, 0), arguments) }
}

/// How a kernel is spread out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Launch {
    pub(crate) blocks: (u32, u32),
    pub(crate) threads: u32,
    /// Bytes of shared memory of a block, besides what the kernel declares.
    pub(crate) shared: u32,
    /// It may begin while the kernel before it in the stream ends.
    pub(crate) overlaps: bool,
}

impl Launch {
    pub(crate) fn new(blocks: (u32, u32), threads: u32, shared: u32) -> Self {
        Self { blocks, threads, shared, overlaps: false }
    }
}

/// Starts a kernel on a grid of two dimensions, with shared memory of its own choice.
///
/// # Safety
/// As for [`launch`]. A kernel that overlaps waits by itself for what the one before it does.
pub(crate) unsafe fn launch_grid(
    stream: &CudaStream,
    kernel: &CudaFunction,
    launch: Launch,
    arguments: &impl Arguments,
) -> Result<(), DriverError> {
    let mut overlap = sys::CUlaunchAttribute {
        id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        pad: [0; 4],
        value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
    };
    let config = sys::CUlaunchConfig {
        gridDimX: launch.blocks.0,
        gridDimY: launch.blocks.1,
        gridDimZ: 1,
        blockDimX: launch.threads,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: launch.shared,
        hStream: stream.cu_stream(),
        attrs: &mut overlap,
        numAttrs: u32::from(launch.overlaps),
    };
    stream.context().bind_to_thread()?;
    let mut places = arguments.places();
    // SAFETY: the caller's promise; the driver reads the arguments before it returns.
    unsafe { sys::cuLaunchKernelEx(&config, kernel.cu_function(), places.as_mut_ptr(), std::ptr::null_mut()) }
        .result()
}
