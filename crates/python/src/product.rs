//! Products from frozen weights that are asked for again and again: what does not change from call to call is looked up once, since
//! the host's time for a call is what bounds a model that is not compiled.

use buddy_codec::{Codec, FrozenHeader};
use buddy_core::Target;
use buddy_cuda::{
    FrozenBuffer, Gpu, Linear, Output,
    cudarc::driver::sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE,
};
use pyo3::prelude::*;

use crate::{
    failure,
    linear::NO_GPU,
    place::{gpu, on_gpu},
};

/// What x is aligned to.
const ALIGN: u64 = 16;

/// A matrix of bf16 at 4/3x on a GPU, to be multiplied by.
#[pyclass(frozen, module = "buddy._native")]
pub(crate) struct Product {
    gpu: Gpu,
    codec: Codec,
    outputs: u32,
    inputs: u32,
    /// Of the buffer.
    bytes: u64,
}

#[pymethods]
impl Product {
    #[new]
    fn new(device: i32, codec: &str, outputs: u32, inputs: u32, bytes: u64) -> PyResult<Self> {
        let (gpu, _) = gpu((device, 0))?.ok_or_else(|| failure::value(NO_GPU))?;
        Ok(Self { gpu, codec: codec.parse().map_err(failure::value)?, outputs, inputs, bytes })
    }

    /// Bytes of counts for so many tokens, zeros, that a layer can have of its own.
    fn count_room(&self, tokens: u32) -> PyResult<u64> {
        let (row, bytes) = (self.inputs / 64, self.weight_bytes());
        let header =
            FrozenHeader { codec: self.codec.clone(), target: Target::X4Over3, bytes, row, sectors: 0 };
        Linear::count_room(&self.gpu, &header, tokens).map_err(failure::gpu)
    }

    /// Starts y = W x and the bias, if its address is not 0, on a stream; x has so many values. False, and nothing is done, if x is not
    /// aligned, if there is too little scratch memory, or if a graph is captured, which must have its own.
    #[allow(clippy::too_many_arguments)]
    fn start(
        &self,
        stream: usize,
        weights: u64,
        x: u64,
        values: u64,
        bias: u64,
        y: u64,
        scratch: u64,
        scratch_bytes: u64,
    ) -> PyResult<bool> {
        // SAFETY: Python gives the current stream of this GPU's primary context, which lives until the call's work is queued.
        let stream = unsafe { self.gpu.borrow_stream(stream as *mut _) }.map_err(failure::gpu)?;
        let how = (&self.codec, Target::X4Over3, self.inputs / 64);
        let memory = on_gpu((weights, self.bytes));
        let weights =
            &FrozenBuffer::over(&self.gpu, how, self.weight_bytes(), memory).map_err(failure::gpu)?;
        let tokens = values / u64::from(self.inputs);
        let linear = Linear {
            weights: weights.into(),
            x: on_gpu((x, 2 * values)),
            bias: (bias != 0).then(|| on_gpu((bias, 2 * u64::from(self.outputs)))),
            y: on_gpu((y, 2 * tokens * u64::from(self.outputs))),
            output: Output::Bf16,
            scratch: on_gpu((scratch, scratch_bytes)),
            overlaps: false,
        };
        let is_free = || stream.capture_status() == Ok(CU_STREAM_CAPTURE_STATUS_NONE);
        if !x.is_multiple_of(ALIGN) || !linear.has_room() || !is_free() {
            return Ok(false);
        }
        linear.start(&stream).map(|()| true).map_err(failure::gpu)
    }
}

impl Product {
    fn weight_bytes(&self) -> u64 {
        2 * u64::from(self.outputs) * u64::from(self.inputs)
    }
}
