//! Linear layers from packed weights on a GPU.

use buddy_codec::FrozenHeader;
use buddy_cuda::{DeviceSpan, FrozenBuffer, Linear, Output};
use pyo3::prelude::*;

use crate::{
    device::{Device, Range, gpu, on_gpu},
    error,
    packing::{Format, parse},
};

pub(crate) const NO_GPU: &str =
    "linear layers read packed weights on a GPU only; on the CPU unpack and multiply";

/// Returns the bytes of scratch memory for `tokens` rows of x. It must be zero at first; layers
/// leave it reusable.
#[pyfunction]
pub(crate) fn linear_scratch_bytes(
    device: Device,
    format: Format,
    weight_bytes: u64,
    tokens: u32,
) -> PyResult<u64> {
    let (codec, target, row) = parse(&format)?;
    let (gpu, _) = gpu(device)?.ok_or_else(|| error::value(NO_GPU))?;
    let header = FrozenHeader { codec, target, bytes: weight_bytes, row, sectors: 0 };
    Linear::room(&gpu, &header, tokens).map_err(error::gpu)
}

/// Returns how many of these bytes are counters: the part that must be zero.
#[pyfunction]
pub(crate) fn linear_counter_bytes(
    device: Device,
    format: Format,
    weight_bytes: u64,
    tokens: u32,
) -> PyResult<u64> {
    let (codec, target, row) = parse(&format)?;
    let (gpu, _) = gpu(device)?.ok_or_else(|| error::value(NO_GPU))?;
    let header = FrozenHeader { codec, target, bytes: weight_bytes, row, sectors: 0 };
    Linear::count_room(&gpu, &header, tokens).map_err(error::gpu)
}

/// Enqueues y = W x + bias; a bias of `None` is omitted.
///
/// `weights` is the buffer and its data bytes. `counters`: zeroed memory of the layer itself, with
/// which scratch memory need not be zero. `prefetch` loads weights before the preceding kernel of
/// the stream has finished; it must not write them. `swiglu` is that of `linear_prefetched`.
#[pyfunction]
#[pyo3(signature = (device, format, weights, x, bias, y, scratch, counters, prefetch, swiglu = false))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn linear(
    device: Device,
    format: Format,
    weights: (Range, u64),
    x: Range,
    bias: Range,
    y: Range,
    scratch: Range,
    counters: Range,
    prefetch: bool,
    swiglu: bool,
) -> PyResult<()> {
    enqueue(device, format, weights, [x, bias, y, scratch, counters], (output(swiglu), prefetch))
}

/// Enqueues y = W x with prefetched weights. If `swiglu`, rows of W alternate between eight gates
/// and eight up rows, and y is silu(gate) * up.
#[pyfunction]
pub(crate) fn linear_prefetched(
    device: Device,
    format: Format,
    weights: (Range, u64),
    x: Range,
    y: Range,
    scratch: Range,
    swiglu: bool,
) -> PyResult<()> {
    let none = Range::default();
    enqueue(device, format, weights, [x, none, y, scratch, none], (output(swiglu), true))
}

fn output(swiglu: bool) -> Output {
    if swiglu { Output::Gated } else { Output::Bf16 }
}

/// Compiles and loads the kernels of layers (outputs, inputs, whether with `swiglu`) for each
/// number of tokens, many at a time. Returns the most bytes of counters of any of them.
#[pyfunction]
pub(crate) fn linear_load(
    py: Python<'_>,
    device: Device,
    layers: Vec<(u32, u32, bool)>,
    tokens: Vec<u32>,
) -> PyResult<u64> {
    let (gpu, _) = gpu(device)?.ok_or_else(|| error::value(NO_GPU))?;
    py.detach(|| Linear::load(&gpu, &layers, &tokens)).map_err(error::gpu)
}

/// `ranges`: x, bias, y, scratch, counters; bias and counters may be empty.
fn enqueue(
    device: Device,
    format: Format,
    weights: (Range, u64),
    ranges: [Range; 5],
    (output, overlaps): (Output, bool),
) -> PyResult<()> {
    let (codec, target, row) = parse(&format)?;
    let (gpu, stream) = gpu(device)?.ok_or_else(|| error::value(NO_GPU))?;
    let frozen = FrozenBuffer::over(&gpu, (&codec, target, row), weights.1, on_gpu(weights.0));
    let [x, bias, y, scratch, counters] = ranges.map(on_gpu);
    let given = |span: DeviceSpan<'static>| (span.bytes() > 0).then_some(span);
    let weights = &frozen.map_err(error::gpu)?;
    let linear = Linear { weights: weights.into(), x, bias: given(bias), y, output, scratch, overlaps };
    linear.start_with(&stream, given(counters)).map_err(error::gpu)
}
