//! The context that the calling thread has, made by someone else.

use std::{ptr, sync::Arc};

use cudarc::driver::{CudaContext, DriverError, sys};

/// A context that is current.
pub(crate) struct Current {
    pub(crate) context: sys::CUcontext,
    /// Unlike its address, never given to another one.
    pub(crate) id: u64,
}

/// The context that is current on this thread.
pub(crate) fn current() -> Option<Current> {
    let (mut context, mut id) = (ptr::null_mut(), 0);
    // SAFETY: the driver writes one address. Before anyone has initialised the driver it says so: no context.
    let found = unsafe { sys::cuCtxGetCurrent(&mut context) }.result();
    if found.is_err() || context.is_null() {
        return None;
    }
    // SAFETY: the context is alive, since it is current; the driver writes one number.
    unsafe { sys::cuCtxGetId(context, &mut id) }.result().ok()?;
    Some(Current { context, id })
}

/// Wraps a context, which must be current, without ever ending it.
pub(crate) fn borrow_context(context: sys::CUcontext) -> Result<Arc<CudaContext>, DriverError> {
    let mut device = 0;
    // SAFETY: the driver writes one number, of the current context.
    unsafe { sys::cuCtxGetDevice(&mut device) }.result()?;
    // SAFETY: the context is alive and of this device. The wrapper would destroy it with its last clone: the clone
    // that is forgotten here never goes, so that the owner keeps it.
    let wrapped = unsafe { CudaContext::from_raw_context(device as usize, device, context) }?;
    std::mem::forget(wrapped.clone());
    Ok(wrapped)
}

/// Whether the driver knows this as an address of its own: device memory, or host memory that it mapped.
pub(crate) fn reaches(address: u64) -> bool {
    let mut kind = 0u32;
    let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    // SAFETY: the driver writes one 32-bit number, and only looks the address up.
    unsafe { sys::cuPointerGetAttribute((&raw mut kind).cast(), attribute, address) }.result().is_ok()
}
