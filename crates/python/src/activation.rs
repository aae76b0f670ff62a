//! Activations on a GPU: the forward kernel packs its input, the backward kernel reads it packed.

use buddy_cuda::{Activation, CudaStream, PackedActivation};
use pyo3::prelude::*;
use std::sync::Arc;

use crate::{
    device::{Device, Range, gpu, on_gpu},
    error,
    packing::{Format, parse},
};

/// Returns the named activation over a packed buffer, and its stream.
fn open<'a>(
    device: Device,
    format: &Format,
    name: &str,
    bytes: u64,
    (packed, overflow): (Range, Range),
) -> PyResult<(PackedActivation<'a>, Arc<CudaStream>)> {
    let (codec, target, _) = parse(format)?;
    let activation =
        Activation::named(name).ok_or_else(|| error::value(format!("unknown activation '{name}'")))?;
    let (gpu, stream) = gpu(device)?.ok_or_else(|| error::value("activations are packed on a GPU only"))?;
    let buffer = PackedActivation::over(&gpu, activation, (&codec, target), bytes, on_gpu(packed));
    let buffer = match overflow.bytes {
        0 => buffer,
        _ => buffer.and_then(|buffer| buffer.with_overflow(on_gpu(overflow))),
    };
    Ok((buffer.map_err(error::gpu)?, stream))
}

/// Writes the output of an activation and packs what the backward pass needs of the input.
/// `status`, `overflow` and `counters` are those of `pack`.
#[pyfunction]
#[pyo3(signature = (device, format, name, input, output, to, status, overflow = None, counters = None))]
#[allow(clippy::too_many_arguments)] // Python's arguments are flat
pub(crate) fn activation_forward(
    device: Device,
    format: Format,
    name: &str,
    input: Range,
    output: Range,
    to: Range,
    status: u64,
    overflow: Option<Range>,
    counters: Option<Range>,
) -> PyResult<()> {
    let (buffer, stream) = open(device, &format, name, input.bytes, (to, overflow.unwrap_or_default()))?;
    let buffer = match counters.unwrap_or_default() {
        Range { bytes: 0, .. } => buffer,
        counters => buffer.with_sums(on_gpu(counters)).map_err(error::gpu)?,
    };
    // SAFETY: Python holds the status word until the GPU has written it.
    unsafe { buffer.forward(&stream, on_gpu(input), on_gpu(output), status) }.map_err(error::gpu)
}

/// Recomputes the output from the packed input.
#[pyfunction]
#[pyo3(signature = (device, format, name, packed, output, overflow = None))]
pub(crate) fn activation_output(
    device: Device,
    format: Format,
    name: &str,
    packed: Range,
    output: Range,
    overflow: Option<Range>,
) -> PyResult<()> {
    let (buffer, stream) = open(device, &format, name, output.bytes, (packed, overflow.unwrap_or_default()))?;
    buffer.output(&stream, on_gpu(output)).map_err(error::gpu)
}

/// Writes the input's gradient from the output's gradient and the packed input.
#[pyfunction]
#[pyo3(signature = (device, format, name, packed, grad_output, grad_input, overflow = None))]
pub(crate) fn activation_backward(
    device: Device,
    format: Format,
    name: &str,
    packed: Range,
    grad_output: Range,
    grad_input: Range,
    overflow: Option<Range>,
) -> PyResult<()> {
    let overflow = overflow.unwrap_or_default();
    let (buffer, stream) = open(device, &format, name, grad_input.bytes, (packed, overflow))?;
    buffer.backward(&stream, on_gpu(grad_output), on_gpu(grad_input)).map_err(error::gpu)
}
