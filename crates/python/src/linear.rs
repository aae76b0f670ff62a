//! Linear layers from frozen weights on a GPU.

use buddy_codec::FrozenHeader;
use buddy_cuda::{DeviceSpan, FrozenBuffer, Linear, Output};
use pyo3::prelude::*;

use crate::{
    failure,
    frozen::{How, parse},
    place::{Place, Span, gpu, on_gpu},
};

pub(crate) const NO_GPU: &str =
    "products from compressed weights are for GPUs; on the CPU unpack and multiply";

/// Bytes of scratch memory for so many tokens; it begins as zeros, and layers leave it so that it can be used again.
#[pyfunction]
pub(crate) fn linear_room(place: Place, how: How, weight_bytes: u64, tokens: u32) -> PyResult<u64> {
    let (codec, target, row) = parse(&how)?;
    let (gpu, _) = gpu(place)?.ok_or_else(|| failure::value(NO_GPU))?;
    let header = FrozenHeader { codec, target, bytes: weight_bytes, row, sectors: 0 };
    Linear::room(&gpu, &header, tokens).map_err(failure::gpu)
}

/// y = W x and the bias, if its span is not empty, when the stream gets there. `weights` is the buffer and the bytes of its data.
/// `counts`, if not empty, are zeros of the layer's own; then scratch memory need not be zeros. `ahead`: weights are asked for while the
/// kernel before it in the stream ends, which must not write them.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub(crate) fn linear(
    place: Place,
    how: How,
    weights: (Span, u64),
    x: Span,
    bias: Span,
    y: Span,
    scratch: Span,
    counts: Span,
    ahead: bool,
) -> PyResult<()> {
    start(place, how, weights, [x, bias, y, scratch, counts], (Output::Bf16, ahead))
}

/// y = W x from frozen weights, which are asked for while the kernel before it in the stream ends: it must not write them. `gated`:
/// eight rows of gates and eight of values take turns, and y is silu(gate) * value.
#[pyfunction]
pub(crate) fn linear_ahead(
    place: Place,
    how: How,
    weights: (Span, u64),
    x: Span,
    y: Span,
    scratch: Span,
    gated: bool,
) -> PyResult<()> {
    let output = if gated { Output::Gated } else { Output::Bf16 };
    start(place, how, weights, [x, (0, 0), y, scratch, (0, 0)], (output, true))
}

/// `spans`: x, bias, y, scratch, counts; an empty bias is none, and so are empty counts.
fn start(
    place: Place,
    how: How,
    weights: (Span, u64),
    spans: [Span; 5],
    (output, overlaps): (Output, bool),
) -> PyResult<()> {
    let (codec, target, row) = parse(&how)?;
    let (gpu, stream) = gpu(place)?.ok_or_else(|| failure::value(NO_GPU))?;
    let frozen = FrozenBuffer::over(&gpu, (&codec, target, row), weights.1, on_gpu(weights.0));
    let [x, bias, y, scratch, counts] = spans.map(on_gpu);
    let given = |span: DeviceSpan<'static>| (span.bytes() > 0).then_some(span);
    let weights = &frozen.map_err(failure::gpu)?;
    let linear = Linear { weights: weights.into(), x, bias: given(bias), y, output, scratch, overlaps };
    linear.start_with(&stream, given(counts)).map_err(failure::gpu)
}
