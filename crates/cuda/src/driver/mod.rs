//! Unsafe calls of the driver and of the compiler, each behind a function that upholds its
//! conditions.

mod compiler;
mod current;
mod launch;
mod region;
mod tensor;

use std::sync::OnceLock;

use cudarc::driver::{CudaStream, DeviceRepr, DriverError, result, sys};

pub(crate) use compiler::{compile, has_compiler};
pub(crate) use current::{Current, borrow_context, current, lives, reach};
pub(crate) use launch::allow;
pub use launch::{Arguments, Launch};
pub(crate) use region::Region;
pub(crate) use tensor::TensorMap;

use crate::{
    Error,
    bytes::DeviceSpan,
    csr::CsrProduct,
    decode::{GateView, NormView, PickView},
    kv::{AttentionArguments, KvView, RowsView},
    layout::{
        BuddyView, CombiningView, LinearView, MatrixRows, Memory, Packing, Reading, RoutingView,
        TightReading, Unpacking,
    },
    norm::Normalising,
    source::Params,
};

// SAFETY: plain numbers in C layout, the same struct as in `map.cuh`; a test compares the sizes.
unsafe impl DeviceRepr for Memory {}
// SAFETY: likewise, the struct of `bits.cuh`.
unsafe impl DeviceRepr for Params {}
// SAFETY: likewise, the struct of `entry.cuh`.
unsafe impl DeviceRepr for BuddyView {}

// SAFETY: likewise, the structs of `frozen.cu` and `linear_pipeline.cuh`.
unsafe impl DeviceRepr for Packing {}
// SAFETY: likewise.
unsafe impl DeviceRepr for Reading {}
// SAFETY: likewise.
unsafe impl DeviceRepr for TightReading {}
// SAFETY: likewise.
unsafe impl DeviceRepr for LinearView {}
// SAFETY: likewise, the structs of `route.cu`.
unsafe impl DeviceRepr for RoutingView {}
// SAFETY: likewise.
unsafe impl DeviceRepr for CombiningView {}
// SAFETY: likewise, the struct of `unpack.cu`.
unsafe impl DeviceRepr for Unpacking {}
// SAFETY: likewise, the struct `Rows` of `external.cu`.
unsafe impl DeviceRepr for MatrixRows {}
// SAFETY: likewise, the struct `KvCache` of `kv.cuh`.
unsafe impl DeviceRepr for KvView {}
// SAFETY: likewise, the struct `KvRows` of `kv.cu`.
unsafe impl DeviceRepr for RowsView {}
// SAFETY: likewise, the struct `Attention` of `attention_plan.cuh`.
unsafe impl DeviceRepr for AttentionArguments {}
// SAFETY: likewise, the structs of `decode.cu`.
unsafe impl DeviceRepr for NormView {}
// SAFETY: likewise.
unsafe impl DeviceRepr for GateView {}
// SAFETY: likewise.
unsafe impl DeviceRepr for PickView {}
// SAFETY: likewise, the struct of `csr.cu`.
unsafe impl DeviceRepr for CsrProduct {}
// SAFETY: likewise, the struct of `norm.cu`.
unsafe impl DeviceRepr for Normalising {}

/// The lowest CUDA version of the driver that the kernels' machine code and the calls here need,
/// and the first driver with it.
const LEAST_VERSION: (i32, &str) = (13000, "580");

/// The functions that every driver has, and those that only a driver of this version has.
const FUNCTIONS: [&str; 4] = ["cuInit", "cuDriverGetVersion", "cuCtxGetId", "cuPointerGetAttribute"];

/// Checks for a usable driver: its library, functions and version. Repeated until it succeeds.
pub(crate) fn usable() -> Result<(), Error> {
    static FOUND: OnceLock<()> = OnceLock::new();
    if FOUND.get().is_none() {
        look()?;
        let _ = FOUND.set(());
    }
    Ok(())
}

fn look() -> Result<(), Error> {
    // SAFETY: loading libcuda runs only its own initialisers.
    if !unsafe { sys::is_culib_present() } {
        return Err(Error::NoDriver);
    }
    let has = |name: &str| {
        // SAFETY: the library was just found; the symbol is looked up and not called.
        unsafe { sys::culib().get::<unsafe extern "C" fn()>(name.as_bytes()) }.is_ok()
    };
    let lacks = |names: &[&'static str]| names.iter().find(|name| !has(name)).copied();
    if let Some(function) = lacks(&FUNCTIONS[..2]) {
        return Err(Error::BadDriver { function });
    }
    let found =
        version().map_err(|error| Error::Driver { what: "tell its version", reason: error.to_string() })?;
    let (least, driver) = LEAST_VERSION;
    if found < least {
        return Err(Error::OldDriver { found, least, driver });
    }
    lacks(&FUNCTIONS).map_or(Ok(()), |function| Err(Error::BadDriver { function }))
}

/// Reads eight bytes of device memory in stream order, and waits for them.
pub(crate) fn read_number(stream: &CudaStream, address: u64) -> Result<u64, DriverError> {
    stream.context().bind_to_thread()?;
    let mut number = 0u64;
    let to = (&raw mut number).cast();
    // SAFETY: the caller's address is in a span of this GPU; the number lives until the stream is
    // synchronised.
    unsafe { sys::cuMemcpyDtoHAsync_v2(to, address, 8, stream.cu_stream()) }.result()?;
    stream.synchronize()?;
    Ok(number)
}

/// Returns the driver's CUDA version, such as 13000.
pub(crate) fn version() -> Result<i32, DriverError> {
    let mut version = 0;
    // SAFETY: the driver writes one number to the given address.
    unsafe { sys::cuDriverGetVersion(&mut version) }.result()?;
    Ok(version)
}

/// Returns a GPU's architecture, such as 90, without creating a context.
pub(crate) fn architecture(ordinal: i32) -> Result<u32, DriverError> {
    use sys::CUdevice_attribute as Attribute;
    let device = result::device::get(ordinal)?;
    // SAFETY: the driver writes one number, for a device that it has just returned.
    let number = |attribute| unsafe { result::device::get_attribute(device, attribute) };
    let major = number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    Ok((10 * major + number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?) as u32)
}

/// Copies one span to another in stream order, up to the length of the shorter one.
pub(crate) fn copy(stream: &CudaStream, from: DeviceSpan<'_>, to: DeviceSpan<'_>) -> Result<(), DriverError> {
    stream.context().bind_to_thread()?;
    let bytes = from.bytes().min(to.bytes()) as usize;
    // SAFETY: both spans are memory of this GPU for as long as the work on them lasts.
    unsafe { result::memcpy_dtod_async(to.address(), from.address(), bytes, stream.cu_stream()) }
}

/// Sets all bytes of a span in stream order.
pub(crate) fn fill(stream: &CudaStream, span: DeviceSpan<'_>, value: u8) -> Result<(), DriverError> {
    stream.context().bind_to_thread()?;
    // SAFETY: the span is memory of this GPU for as long as the work on it lasts.
    unsafe { result::memset_d8_async(span.address(), value, span.bytes() as usize, stream.cu_stream()) }
}
