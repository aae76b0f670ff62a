//! What lies between the products of a decode step on a GPU, and rows of a frozen embedding.

use std::{
    collections::HashMap,
    sync::{LazyLock, Mutex, PoisonError},
};

use buddy_codec::Frozen;
use buddy_cuda::{CudaStream, Decoding, FrozenBuffer, Pick, RmsNorm};
use pyo3::prelude::*;

use crate::{
    failure,
    frozen::{How, parse},
    place::{Place, Span, bytes, bytes_mut, gpu, on_gpu},
};

const NO_GPU: &str = "the parts of a decode step are for GPUs";

/// The kernels, by the GPU's number.
static KERNELS: LazyLock<Mutex<HashMap<i32, Decoding>>> = LazyLock::new(Mutex::default);

/// Does something with the kernels on the current stream.
fn with(
    place: Place,
    work: impl FnOnce(&Decoding, &CudaStream) -> Result<(), buddy_cuda::Error>,
) -> PyResult<()> {
    let (gpu, stream) = gpu(place)?.ok_or_else(|| failure::value(NO_GPU))?;
    let kernels = {
        let mut kernels = KERNELS.lock().unwrap_or_else(PoisonError::into_inner);
        match kernels.get(&place.0) {
            Some(kernels) => kernels.clone(),
            None => kernels.entry(place.0).or_insert(Decoding::new(&gpu).map_err(failure::gpu)?).clone(),
        }
    };
    work(&kernels, &stream).map_err(failure::gpu)
}

/// The norm of a residual stream and of what is added to it, unless that span is empty. `spans`: stream, added, weights, result.
#[pyfunction]
pub(crate) fn decode_norm(place: Place, spans: [Span; 4], epsilon: f32) -> PyResult<()> {
    let [stream, added, weights, out] = spans.map(on_gpu);
    let added = (spans[1].1 > 0).then_some(added);
    with(place, |decoding, on| decoding.norm(on, &RmsNorm { stream, added, weights, out, epsilon }))
}

/// silu(gate) * value of rows that hold all gates, then as many values.
#[pyfunction]
pub(crate) fn decode_gate(place: Place, both: Span, out: Span, tokens: u32) -> PyResult<()> {
    with(place, |decoding, on| decoding.gate(on, on_gpu(both), on_gpu(out), tokens))
}

/// The token of the highest score of each sequence. `spans`: scores, history, lengths, and entries of the embedding.
#[pyfunction]
pub(crate) fn decode_pick(place: Place, spans: [Span; 4]) -> PyResult<()> {
    let [scores, history, lengths, entries] = spans.map(on_gpu);
    with(place, |decoding, on| decoding.pick(on, &Pick { scores, history, lengths, entries }))
}

/// Single entries of a frozen buffer: the i-th of `to` is the one whose number, 32 bits, is the i-th of `list`.
#[pyfunction]
pub(crate) fn gather_frozen(place: Place, how: How, from: (Span, u64), list: Span, to: Span) -> PyResult<()> {
    let Some((gpu, stream)) = gpu(place)? else {
        return gather_here(bytes(from.0)?, bytes(list)?, bytes_mut(to)?);
    };
    let (codec, target, row) = parse(&how)?;
    let frozen = FrozenBuffer::over(&gpu, (&codec, target, row), from.1, on_gpu(from.0));
    frozen.and_then(|frozen| frozen.gather(&stream, on_gpu(list), on_gpu(to))).map_err(failure::gpu)
}

fn gather_here(from: &[u8], list: &[u8], to: &mut [u8]) -> PyResult<()> {
    let frozen = Frozen::open(from).map_err(failure::value)?;
    for (number, entry) in list.as_chunks().0.iter().zip(to.as_chunks_mut().0) {
        *entry = frozen.entry(u64::from(u32::from_le_bytes(*number))).map_err(failure::value)?;
    }
    Ok(())
}
