//! Devices and tensor memory as Python passes them.

use std::{
    collections::HashMap,
    slice,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use buddy_cuda::{CudaStream, DeviceSpan, Gpu};
use pyo3::{exceptions::PyTypeError, prelude::*};

use crate::error;

/// Index of a GPU, negative for the CPU, and the raw handle of its current stream.
pub(crate) type Device = (i32, usize);

/// A byte range and the Python object that owns it.
///
/// Native functions take spans, never bare addresses: the arguments of a call keep the owner alive
/// until the call returns.
#[pyclass(frozen, module = "buddy._native")]
pub(crate) struct Span {
    #[pyo3(get)]
    address: u64,
    #[pyo3(get)]
    nbytes: u64,
    #[pyo3(get)]
    owner: Py<PyAny>,
}

#[pymethods]
impl Span {
    #[new]
    fn new(owner: Py<PyAny>, address: u64, nbytes: u64) -> PyResult<Self> {
        if nbytes > 0 && (address == 0 || nbytes > isize::MAX as u64) {
            return Err(error::value(format!("{nbytes} bytes at {address:#x} are not a range of memory")));
        }
        Ok(Self { address, nbytes, owner })
    }

    fn __repr__(&self) -> String {
        format!("Span({:#x}, {} bytes)", self.address, self.nbytes)
    }
}

/// The range of a `Span` argument, valid for the call; empty where Python passes `None`.
#[derive(Clone, Copy, Default)]
pub(crate) struct Range {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

impl<'py> FromPyObject<'_, 'py> for Range {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if object.is_none() {
            return Ok(Self::default());
        }
        let span = object.cast::<Span>().map_err(|_| {
            PyTypeError::new_err("native functions take a buddy._native.Span, which holds its owner")
        })?;
        let span = span.get();
        Ok(Self { address: span.address, bytes: span.nbytes })
    }
}

/// GPUs in use. Their contexts are the primary ones, which PyTorch uses too.
static GPUS: LazyLock<Mutex<HashMap<usize, Gpu>>> = LazyLock::new(Mutex::default);

/// Returns a GPU and its stream; `None` for the CPU.
pub(crate) fn gpu((index, stream): Device) -> PyResult<Option<(Gpu, Arc<CudaStream>)>> {
    let Ok(index) = usize::try_from(index) else { return Ok(None) };
    let gpu = {
        let mut gpus = GPUS.lock().unwrap_or_else(PoisonError::into_inner);
        match gpus.get(&index) {
            Some(gpu) => gpu.clone(),
            None => gpus.entry(index).or_insert(Gpu::open(index).map_err(error::gpu)?).clone(),
        }
    };
    // SAFETY: Python passes the current stream of this GPU's primary context, which outlives the
    // call.
    let stream = unsafe { gpu.borrow_stream(stream as *mut _) }.map_err(error::gpu)?;
    Ok(Some((gpu, stream)))
}

/// Returns a range of device memory.
pub(crate) fn on_gpu<'a>(range: Range) -> DeviceSpan<'a> {
    // SAFETY: the call's arguments hold the tensor, and PyTorch's allocator reuses its memory only
    // after the work that is enqueued on the stream.
    unsafe { DeviceSpan::from_raw(range.address, range.bytes) }
}

/// Returns a range of host memory for reading.
pub(crate) fn bytes<'a>(range: Range) -> &'a [u8] {
    if range.bytes == 0 {
        return &[];
    }
    // SAFETY: the call's arguments hold the tensor, and nothing writes to it during the call.
    unsafe { slice::from_raw_parts(range.address as *const u8, range.bytes as usize) }
}

/// Returns a range of host memory for writing.
pub(crate) fn bytes_mut<'a>(range: Range) -> &'a mut [u8] {
    if range.bytes == 0 {
        return &mut [];
    }
    // SAFETY: the caller allocated the tensor for this call and holds its only reference.
    unsafe { slice::from_raw_parts_mut(range.address as *mut u8, range.bytes as usize) }
}

/// A plain number, of which every bit pattern is a value.
pub(crate) trait Number {}
impl Number for i32 {}
impl Number for i64 {}
impl Number for u32 {}
impl Number for u64 {}
impl Number for f32 {}
impl Number for f64 {}

/// Returns a range of host memory as numbers, for reading.
pub(crate) fn numbers<'a, T: Number>(range: Range) -> PyResult<&'a [T]> {
    // SAFETY: every bit pattern is a number.
    let (before, numbers, after) = unsafe { bytes(range).align_to::<T>() };
    if before.is_empty() && after.is_empty() { Ok(numbers) } else { Err(unaligned::<T>(range)) }
}

/// Returns a range of host memory as numbers, for writing.
pub(crate) fn numbers_mut<'a, T: Number>(range: Range) -> PyResult<&'a mut [T]> {
    // SAFETY: every bit pattern is a number.
    let (before, numbers, after) = unsafe { bytes_mut(range).align_to_mut::<T>() };
    if before.is_empty() && after.is_empty() { Ok(numbers) } else { Err(unaligned::<T>(range)) }
}

fn unaligned<T>(range: Range) -> PyErr {
    error::value(format!(
        "{} bytes at {:#x} are no numbers of {}",
        range.bytes,
        range.address,
        size_of::<T>()
    ))
}
