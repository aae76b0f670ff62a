//! Everything unsafe: calls of the driver and of the compiler, each behind a function that keeps its conditions.

mod compiler;
mod current;
mod region;
mod vendor;

use cudarc::driver::{
    CudaFunction, CudaStream, DeviceRepr, DriverError, LaunchConfig, PushKernelArg, result, sys,
};

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
    /// Shows each argument's address to `push`.
    fn push<'a>(&'a self, launch: &mut cudarc::driver::LaunchArgs<'a>);
}

macro_rules! arguments {
    ($($name:ident),+) => {
        impl<$($name: DeviceRepr),+> Arguments for ($($name,)+) {
            #[allow(non_snake_case)]
            fn push<'a>(&'a self, launch: &mut cudarc::driver::LaunchArgs<'a>) {
                let ($($name,)+) = self;
                $(launch.arg($name);)+
            }
        }
    };
}

impl Arguments for () {
    fn push<'a>(&'a self, _: &mut cudarc::driver::LaunchArgs<'a>) {}
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
    let blocks = u32::try_from(blocks).expect("fewer than 2^32 blocks");
    // SAFETY: the caller's promise.
    unsafe { launch_grid(stream, kernel, (blocks, 1), threads, 0, arguments) }
}

/// Starts a kernel on a grid of two dimensions, with shared memory of its own choice.
///
/// # Safety
/// As for [`launch`].
pub(crate) unsafe fn launch_grid(
    stream: &CudaStream,
    kernel: &CudaFunction,
    blocks: (u32, u32),
    threads: u32,
    shared_mem_bytes: u32,
    arguments: &impl Arguments,
) -> Result<(), DriverError> {
    let config =
        LaunchConfig { grid_dim: (blocks.0, blocks.1, 1), block_dim: (threads, 1, 1), shared_mem_bytes };
    let mut launch = stream.launch_builder(kernel);
    arguments.push(&mut launch);
    // SAFETY: the caller's promise.
    unsafe { launch.launch(config) }.map(|_| ())
}
