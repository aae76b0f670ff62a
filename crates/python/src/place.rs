//! Where tensors are: addresses of the CPU, or of a GPU with a stream.

use std::{
    collections::HashMap,
    slice,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use buddy_cuda::{CudaStream, DeviceSpan, Gpu};
use pyo3::{PyResult, exceptions::PyValueError};

use crate::failure;

/// The number of a GPU, negative for the CPU, and the address of the current stream there.
pub(crate) type Place = (i32, usize);
/// The address of a tensor's first byte, and its bytes.
pub(crate) type Span = (u64, u64);

/// The GPUs that were used; their contexts are the primary ones, which PyTorch has too.
static GPUS: LazyLock<Mutex<HashMap<usize, Gpu>>> = LazyLock::new(Mutex::default);

/// A GPU and its stream; none for the CPU.
pub(crate) fn gpu((number, stream): Place) -> PyResult<Option<(Gpu, Arc<CudaStream>)>> {
    let Ok(number) = usize::try_from(number) else { return Ok(None) };
    let gpu = {
        let mut gpus = GPUS.lock().unwrap_or_else(PoisonError::into_inner);
        match gpus.get(&number) {
            Some(gpu) => gpu.clone(),
            None => gpus.entry(number).or_insert(Gpu::open(number).map_err(failure::gpu)?).clone(),
        }
    };
    // SAFETY: Python gives the current stream of this GPU's primary context, which lives until the call's work is queued.
    let stream = unsafe { gpu.borrow_stream(stream as *mut _) }.map_err(failure::gpu)?;
    Ok(Some((gpu, stream)))
}

/// A tensor on the GPU.
pub(crate) fn on_gpu<'a>((address, bytes): Span) -> DeviceSpan<'a> {
    // SAFETY: Python holds the tensor during the call, and its allocator gives the memory to others only after the
    // stream's work.
    unsafe { DeviceSpan::from_raw(address, bytes) }
}

/// A tensor on the CPU, to read.
pub(crate) fn bytes<'a>((address, bytes): Span) -> PyResult<&'a [u8]> {
    check(address, bytes)?;
    // SAFETY: Python holds the tensor during the call, and no one writes to it.
    Ok(if bytes == 0 { &[] } else { unsafe { slice::from_raw_parts(address as *const u8, bytes as usize) } })
}

/// A tensor on the CPU, to write.
pub(crate) fn bytes_mut<'a>((address, bytes): Span) -> PyResult<&'a mut [u8]> {
    check(address, bytes)?;
    if bytes == 0 {
        return Ok(&mut []);
    }
    // SAFETY: Python made the tensor for this call, and nothing else knows it.
    Ok(unsafe { slice::from_raw_parts_mut(address as *mut u8, bytes as usize) })
}

fn check(address: u64, bytes: u64) -> PyResult<()> {
    if bytes > 0 && (address == 0 || bytes > isize::MAX as u64) {
        return Err(PyValueError::new_err(format!("{bytes} bytes at {address:#x} are no memory")));
    }
    Ok(())
}
