//! Recomputation of batch normalisation followed by ReLU on a GPU.

use std::{
    collections::HashMap,
    sync::{LazyLock, Mutex, PoisonError},
};

use buddy_cuda::{Channels, NormRelu};
use pyo3::prelude::*;

use crate::{
    device::{Device, Range, gpu, on_gpu},
    error,
};

/// The compiled kernel by GPU index.
static KERNELS: LazyLock<Mutex<HashMap<i32, NormRelu>>> = LazyLock::new(Mutex::default);

/// Returns whether `norm_relu` supports this number of channels.
#[pyfunction]
pub(crate) fn norm_relu_supports(channels: u64) -> bool {
    NormRelu::takes(channels)
}

/// Writes relu(batch_norm(x)) of channels-last bf16 values. `channels`: means and inverse
/// deviations (fp32), weights and biases (bf16).
#[pyfunction]
pub(crate) fn norm_relu(device: Device, x: Range, y: Range, channels: [Range; 4]) -> PyResult<()> {
    let (gpu, stream) = gpu(device)?.ok_or_else(|| error::value("norm_relu runs on a GPU only"))?;
    let kernel = {
        let mut kernels = KERNELS.lock().unwrap_or_else(PoisonError::into_inner);
        match kernels.get(&device.0) {
            Some(kernel) => kernel.clone(),
            None => kernels.entry(device.0).or_insert(NormRelu::new(&gpu).map_err(error::gpu)?).clone(),
        }
    };
    let [mean, deviation, weight, shift] = channels.map(on_gpu);
    let of = Channels { mean, deviation, weight, shift };
    kernel.run(&stream, on_gpu(x), on_gpu(y), &of).map_err(error::gpu)
}
