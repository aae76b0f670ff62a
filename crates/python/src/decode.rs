//! Kernels between the linear layers of a decode step, and gathers from a packed embedding.

use std::{
    collections::HashMap,
    sync::{LazyLock, Mutex, PoisonError},
};

use buddy_codec::Frozen;
use buddy_cuda::{CudaStream, Decoding, FrozenBuffer, Pick, RmsNorm};
use pyo3::prelude::*;

use crate::{
    device::{Device, Range, bytes, bytes_mut, gpu, on_gpu},
    error,
    packing::{Format, parse},
};

const NO_GPU: &str = "decode kernels run on a GPU only";

/// Compiled kernels by GPU index.
static KERNELS: LazyLock<Mutex<HashMap<i32, Decoding>>> = LazyLock::new(Mutex::default);

/// Calls `enqueue` with the kernels and the current stream.
fn with(
    device: Device,
    enqueue: impl FnOnce(&Decoding, &CudaStream) -> Result<(), buddy_cuda::Error>,
) -> PyResult<()> {
    let (gpu, stream) = gpu(device)?.ok_or_else(|| error::value(NO_GPU))?;
    let kernels = {
        let mut kernels = KERNELS.lock().unwrap_or_else(PoisonError::into_inner);
        match kernels.get(&device.0) {
            Some(kernels) => kernels.clone(),
            None => kernels.entry(device.0).or_insert(Decoding::new(&gpu).map_err(error::gpu)?).clone(),
        }
    };
    enqueue(&kernels, &stream).map_err(error::gpu)
}

/// Adds to a residual stream and writes its RMS norm. `spans`: residual stream, addend or `None`,
/// weights, output, and the sum, which may be the stream. `rounds_once`: rounds the result alone.
#[pyfunction]
#[pyo3(signature = (device, spans, epsilon, rounds_once = false))]
pub(crate) fn decode_norm(
    device: Device,
    spans: [Range; 5],
    epsilon: f32,
    rounds_once: bool,
) -> PyResult<()> {
    let [stream, added, weights, out, sum] = spans.map(on_gpu);
    let added = (spans[1].bytes > 0).then_some(added);
    with(device, |kernels, on| {
        kernels.norm(on, &RmsNorm { stream, sum, added, weights, out, epsilon, rounds_once })
    })
}

/// Writes silu(gate) * up for rows that hold all gates, then all up values; or, `interleaved`,
/// eight of each in turn.
#[pyfunction]
#[pyo3(signature = (device, gate_up, out, tokens, interleaved = false))]
pub(crate) fn decode_swiglu(
    device: Device,
    gate_up: Range,
    out: Range,
    tokens: u32,
    interleaved: bool,
) -> PyResult<()> {
    with(device, |kernels, on| kernels.gate(on, on_gpu(gate_up), on_gpu(out), tokens, interleaved))
}

/// Selects the token of the highest logit of each sequence. `spans`: logits, history, lengths,
/// entry indices of the embedding.
#[pyfunction]
pub(crate) fn decode_argmax(device: Device, spans: [Range; 4]) -> PyResult<()> {
    let [scores, history, lengths, entries] = spans.map(on_gpu);
    with(device, |kernels, on| kernels.pick(on, &Pick { scores, history, lengths, entries }))
}

/// Gathers entries of a packed buffer: entry `indices[i]` (32 bits) goes to position `i` of `to`.
#[pyfunction]
pub(crate) fn gather(
    device: Device,
    format: Format,
    from: (Range, u64),
    indices: Range,
    to: Range,
) -> PyResult<()> {
    let Some((gpu, stream)) = gpu(device)? else {
        return gather_on_cpu(bytes(from.0), bytes(indices), bytes_mut(to));
    };
    let (codec, target, row) = parse(&format)?;
    let buffer = FrozenBuffer::over(&gpu, (&codec, target, row), from.1, on_gpu(from.0));
    buffer.and_then(|buffer| buffer.gather(&stream, on_gpu(indices), on_gpu(to))).map_err(error::gpu)
}

fn gather_on_cpu(from: &[u8], indices: &[u8], to: &mut [u8]) -> PyResult<()> {
    let frozen = Frozen::open(from).map_err(error::value)?;
    for (index, entry) in indices.as_chunks().0.iter().zip(to.as_chunks_mut().0) {
        *entry = frozen.entry(u64::from(u32::from_le_bytes(*index))).map_err(error::value)?;
    }
    Ok(())
}
