//! The calling thread's current context, created by someone else.

use std::{ptr, sync::Arc};

use cudarc::driver::{CudaContext, DriverError, sys};

/// A context that is current.
pub(crate) struct Current {
    pub(crate) context: sys::CUcontext,
    /// Unlike an address, never reused.
    pub(crate) id: u64,
}

/// Returns the calling thread's current context.
pub(crate) fn current() -> Option<Current> {
    let (mut context, mut id) = (ptr::null_mut(), 0);
    // SAFETY: the driver writes one address. An uninitialised driver returns an error: no context.
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
    // SAFETY: the driver writes one number about the current context.
    unsafe { sys::cuCtxGetDevice(&mut device) }.result()?;
    // SAFETY: the context is alive and of this device. The wrapper destroys it with its last clone;
    // the clone forgotten here prevents that, so the owner keeps it. The constructor queries the
    // current context, which just succeeded.
    let wrapped = unsafe { CudaContext::from_raw_context(device as usize, device, context) }?;
    std::mem::forget(wrapped.clone());
    Ok(wrapped)
}

/// Returns true if the context with this id still exists. Ids are never reused.
pub(crate) fn lives(context: sys::CUcontext, id: u64) -> bool {
    let mut found = 0;
    // SAFETY: the driver looks the handle up and rejects unknown ones; it writes one number.
    unsafe { sys::cuCtxGetId(context, &mut found) }.result().is_ok_and(|()| found == id)
}

/// Returns how many bytes from an address on, up to `enough`, the driver knows as GPU-accessible:
/// device memory, or mapped host memory. Contiguous mapped pieces, as allocators with growing
/// segments make them, count together.
pub(crate) fn reach(address: u64, enough: u64) -> u64 {
    let mut end = address;
    while end - address < enough {
        let Some((start, bytes)) = range(end) else { break };
        end = start.saturating_add(bytes);
        // Queried only where it decides: memory checkers report every rejected driver call.
        if end - address < enough && !is_mapped_piece(start) {
            break;
        }
    }
    end - address
}

/// Returns the start and size of the allocation or mapped piece that holds an address.
fn range(address: u64) -> Option<(u64, u64)> {
    use sys::CUpointer_attribute::{CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
    let number = |attribute| {
        let mut number = 0u64;
        // SAFETY: the driver writes one 64-bit number for these attributes, and only looks the
        // address up.
        let found = unsafe { sys::cuPointerGetAttribute((&raw mut number).cast(), attribute, address) };
        found.result().ok().map(|()| number)
    };
    let start = number(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)?;
    let bytes = number(CU_POINTER_ATTRIBUTE_RANGE_SIZE)?;
    (start <= address && address - start < bytes).then_some((start, bytes))
}

/// Returns true for memory that was reserved and mapped in two steps; several such pieces may be
/// contiguous.
fn is_mapped_piece(address: u64) -> bool {
    let mut handle = 0;
    // SAFETY: the driver writes one handle, which is released at once.
    unsafe {
        let kept = sys::cuMemRetainAllocationHandle(&mut handle, address as *mut std::ffi::c_void);
        kept.result().is_ok() && sys::cuMemRelease(handle).result().is_ok()
    }
}
