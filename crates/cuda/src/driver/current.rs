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
    // SAFETY: the driver writes one address. Before anyone has initialised the driver it says so:
    // no context.
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
    // SAFETY: the context is alive and of this device. The wrapper would destroy it with its last
    // clone: the clone that is forgotten here never goes, so that the owner keeps it. Making it
    // asks for the current context once more, which cannot fail after it was found a moment ago.
    let wrapped = unsafe { CudaContext::from_raw_context(device as usize, device, context) }?;
    std::mem::forget(wrapped.clone());
    Ok(wrapped)
}

/// Whether a context that was seen with this number is still there. Numbers are not given twice.
pub(crate) fn lives(context: sys::CUcontext, id: u64) -> bool {
    let mut found = 0;
    // SAFETY: the driver looks the handle up and says no to one that it does not know; it writes
    // one number.
    unsafe { sys::cuCtxGetId(context, &mut found) }.result().is_ok_and(|()| found == id)
}

/// How many bytes from this address on the driver knows as memory of its own: device memory, or
/// host memory that it mapped. Memory that was mapped in pieces, as allocators of growing segments
/// do, counts as far as the pieces touch.
pub(crate) fn reach(address: u64, enough: u64) -> u64 {
    let mut end = address;
    while end - address < enough {
        let Some((start, bytes)) = range(end) else { break };
        end = start.saturating_add(bytes);
        // Asked only where it decides: memory checkers report every call that the driver answers
        // with no.
        if end - address < enough && !is_mapped_piece(start) {
            break;
        }
    }
    end - address
}

/// The allocation or the mapped piece that an address lies in: its start and its bytes.
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

/// Whether an address is of memory that was made and mapped in two steps, of which several may lie
/// side by side.
fn is_mapped_piece(address: u64) -> bool {
    let mut handle = 0;
    // SAFETY: the driver writes one handle, which is given back at once.
    unsafe {
        let kept = sys::cuMemRetainAllocationHandle(&mut handle, address as *mut std::ffi::c_void);
        kept.result().is_ok() && sys::cuMemRelease(handle).result().is_ok()
    }
}
