//! Activations on a GPU whose input is packed by the same kernel, and read packed by the backward pass.

use buddy_cuda::{Activation, CudaStream, PackedActivation};
use pyo3::prelude::*;
use std::sync::Arc;

use crate::{
    failure,
    frozen::{How, parse},
    place::{Place, Span, gpu, on_gpu},
};

/// The activation of this name over a buffer, and its stream.
fn open<'a>(
    place: Place,
    how: &How,
    name: &str,
    bytes: u64,
    (memory, overflow): (Span, Span),
) -> PyResult<(PackedActivation<'a>, Arc<CudaStream>)> {
    let (codec, target, _) = parse(how)?;
    let activation =
        Activation::named(name).ok_or_else(|| failure::value(format!("'{name}' is no activation")))?;
    let (gpu, stream) = gpu(place)?.ok_or_else(|| failure::value("activations are packed on a GPU"))?;
    let packed = PackedActivation::over(&gpu, activation, (&codec, target), bytes, on_gpu(memory));
    let packed = match overflow.1 {
        0 => packed,
        _ => packed.and_then(|packed| packed.with_overflow(on_gpu(overflow))),
    };
    Ok((packed.map_err(failure::gpu)?, stream))
}

/// Writes an activation's output, and packs what backward needs of the input; `told`, `overflow` and `sums` as for `freeze`.
#[pyfunction]
#[pyo3(signature = (place, how, name, input, output, to, told, overflow = (0, 0), sums = (0, 0)))]
#[allow(clippy::too_many_arguments)] // Python's are flat
pub(crate) fn activate(
    place: Place,
    how: How,
    name: &str,
    input: Span,
    output: Span,
    to: Span,
    told: u64,
    overflow: Span,
    sums: Span,
) -> PyResult<()> {
    let (packed, stream) = open(place, &how, name, input.1, (to, overflow))?;
    let packed = if sums.1 == 0 { packed } else { packed.with_sums(on_gpu(sums)).map_err(failure::gpu)? };
    // SAFETY: Python keeps the word until it was written.
    unsafe { packed.forward(&stream, on_gpu(input), on_gpu(output), told) }.map_err(failure::gpu)
}

/// Writes the output again from what is packed.
#[pyfunction]
#[pyo3(signature = (place, how, name, from, output, overflow = (0, 0)))]
pub(crate) fn activated(
    place: Place,
    how: How,
    name: &str,
    from: Span,
    output: Span,
    overflow: Span,
) -> PyResult<()> {
    let (packed, stream) = open(place, &how, name, output.1, (from, overflow))?;
    packed.output(&stream, on_gpu(output)).map_err(failure::gpu)
}

/// Writes the gradients of the input from those of the output and what is packed.
#[pyfunction]
#[pyo3(signature = (place, how, name, from, of_output, to, overflow = (0, 0)))]
pub(crate) fn activation_gradients(
    place: Place,
    how: How,
    name: &str,
    from: Span,
    of_output: Span,
    to: Span,
    overflow: Span,
) -> PyResult<()> {
    let (packed, stream) = open(place, &how, name, to.1, (from, overflow))?;
    packed.backward(&stream, on_gpu(of_output), on_gpu(to)).map_err(failure::gpu)
}
