//! Mixtures of experts from packed weights on a GPU of compute capability 9.0.

use std::sync::Arc;

use buddy_cuda::{Combine, CudaStream, DeviceSpan, FrozenBuffer, Gpu, GroupedLinear, Route};
use pyo3::prelude::*;

use crate::{
    device::{Device, Range, gpu, on_gpu},
    error,
    packing::{Format, parse},
};

const NO_GPU: &str = "grouped layers read packed weights on a GPU only; on the CPU unpack and multiply";

fn opened(device: Device) -> PyResult<(Gpu, Arc<CudaStream>)> {
    gpu(device)?.ok_or_else(|| error::value(NO_GPU))
}

/// Returns the bytes of scratch memory of `experts_linear`. It must be zero at first; layers leave
/// it reusable.
#[pyfunction]
pub(crate) fn experts_scratch_bytes(device: Device, tile: u32, inputs: u32) -> PyResult<u64> {
    GroupedLinear::room(&opened(device)?.0, tile, inputs).map_err(error::gpu)
}

/// Sorts assignments by expert and gathers their rows. `spans`: expert ids, x, rows, route.
/// `sizes`: experts of a token, experts in all, most tokens of a group.
#[pyfunction]
pub(crate) fn experts_route(
    device: Device,
    spans: [Range; 4],
    sizes: (u32, u32, u32),
    wide_ids: bool,
) -> PyResult<()> {
    let (gpu, stream) = opened(device)?;
    let ([ids, x, rows, route], (top, experts, tile)) = (spans.map(on_gpu), sizes);
    Route { ids, wide_ids, x, rows, route, top, experts, tile }.start(&gpu, &stream).map_err(error::gpu)
}

/// Multiplies each expert's rows by its matrix. `weights` is the buffer of all matrices and its
/// data bytes; `spans`: rows, bias or `None`, result, route, scratch memory; `sizes`: experts, most
/// tokens of a group. `swiglu` is `is_gated` of `GroupedLinear`.
#[pyfunction]
#[pyo3(signature = (device, format, weights, spans, sizes, swiglu = false))]
pub(crate) fn experts_linear(
    device: Device,
    format: Format,
    weights: (Range, u64),
    spans: [Range; 5],
    sizes: (u32, u32),
    swiglu: bool,
) -> PyResult<()> {
    let (codec, target, row) = parse(&format)?;
    let (gpu, stream) = opened(device)?;
    let frozen = FrozenBuffer::over(&gpu, (&codec, target, row), weights.1, on_gpu(weights.0));
    let weights = &frozen.map_err(error::gpu)?;
    let ([x, bias, y, route, scratch], (experts, tile)) = (spans.map(on_gpu), sizes);
    let bias = Some(bias).filter(|bias: &DeviceSpan<'_>| bias.bytes() > 0);
    let weights = weights.into();
    GroupedLinear { weights, experts, x, bias, y, is_gated: swiglu, route, scratch, tile }
        .start(&stream)
        .map_err(error::gpu)
}

/// Adds up each token's results with their weights. `spans`: results by position, route, weights
/// (bf16 if `narrow_weights`, else fp32), output.
#[pyfunction]
pub(crate) fn experts_combine(
    device: Device,
    spans: [Range; 4],
    top: u32,
    narrow_weights: bool,
) -> PyResult<()> {
    let (gpu, stream) = opened(device)?;
    let [rows, route, weights, y] = spans.map(on_gpu);
    Combine { rows, route, weights, narrow_weights, y, top }.start(&gpu, &stream).map_err(error::gpu)
}
