//! Batch normalisation with the ReLU after it, done again on a GPU.

use std::{
    collections::HashMap,
    sync::{LazyLock, Mutex, PoisonError},
};

use buddy_cuda::{Channels, NormRelu};
use pyo3::prelude::*;

use crate::{
    failure,
    place::{Place, Span, gpu, on_gpu},
};

/// The kernel, by the GPU's number.
static KERNELS: LazyLock<Mutex<HashMap<i32, NormRelu>>> = LazyLock::new(Mutex::default);

/// Whether `normalise_relu` takes so many channels.
#[pyfunction]
pub(crate) fn normalises(channels: u64) -> bool {
    NormRelu::takes(channels)
}

/// Writes what batch normalisation and the ReLU after it put out, of bf16 values whose channels lie side by side. `channels`: means and
/// inverse deviations, fp32, weights and shifts, bf16.
#[pyfunction]
pub(crate) fn normalise_relu(place: Place, x: Span, y: Span, channels: [Span; 4]) -> PyResult<()> {
    let (gpu, stream) = gpu(place)?.ok_or_else(|| failure::value("this kernel is for GPUs"))?;
    let kernel = {
        let mut kernels = KERNELS.lock().unwrap_or_else(PoisonError::into_inner);
        match kernels.get(&place.0) {
            Some(kernel) => kernel.clone(),
            None => kernels.entry(place.0).or_insert(NormRelu::new(&gpu).map_err(failure::gpu)?).clone(),
        }
    };
    let [mean, deviation, weight, shift] = channels.map(on_gpu);
    let of = Channels { mean, deviation, weight, shift };
    kernel.run(&stream, on_gpu(x), on_gpu(y), &of).map_err(failure::gpu)
}
