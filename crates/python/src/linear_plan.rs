//! A linear layer that is called many times: everything that does not change between calls is
//! resolved once.
//!
//! The host time of a call bounds an eager model.

use buddy_codec::{Codec, FrozenHeader};
use buddy_core::Target;
use buddy_cuda::{FrozenBuffer, Gpu, Linear, Output};
use cudarc::driver::sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
use pyo3::prelude::*;

use crate::{
    device::{Range, gpu, on_gpu},
    error,
    linear::NO_GPU,
};

/// Required alignment of x in bytes.
const ALIGN: u64 = 16;

/// A packed bf16 matrix at 4/3x on a GPU, ready to be multiplied.
#[pyclass(frozen, module = "buddy._native")]
pub(crate) struct LinearPlan {
    gpu: Gpu,
    codec: Codec,
    outputs: u32,
    inputs: u32,
    /// Size of the packed buffer.
    bytes: u64,
}

#[pymethods]
impl LinearPlan {
    #[new]
    fn new(device: i32, codec: &str, outputs: u32, inputs: u32, bytes: u64) -> PyResult<Self> {
        let (gpu, _) = gpu((device, 0))?.ok_or_else(|| error::value(NO_GPU))?;
        Ok(Self { gpu, codec: codec.parse().map_err(error::value)?, outputs, inputs, bytes })
    }

    /// Returns the bytes of zeroed counters that a layer can own, for up to `tokens` rows of x.
    fn counter_bytes(&self, tokens: u32) -> PyResult<u64> {
        Linear::count_room(&self.gpu, &self.header(), tokens).map_err(error::gpu)
    }

    /// Returns the bytes of scratch memory for `tokens` rows of x.
    fn scratch_bytes(&self, tokens: u32) -> PyResult<u64> {
        Linear::room(&self.gpu, &self.header(), tokens).map_err(error::gpu)
    }

    /// Enqueues y = W x + bias (omitted if its address is 0) for `values` values of x. Returns
    /// false and enqueues nothing if x is misaligned, scratch is too small, or the stream is
    /// capturing a graph, which needs scratch of its own. With `counters`, the address and size of
    /// zeros, scratch need not be zero.
    ///
    /// The one function that takes bare addresses, for the sake of host time: its caller holds
    /// every tensor in a variable.
    #[allow(clippy::too_many_arguments)]
    fn enqueue(
        &self,
        stream: usize,
        weights: u64,
        x: u64,
        values: u64,
        bias: u64,
        y: u64,
        scratch: u64,
        scratch_bytes: u64,
        counters: u64,
        counter_bytes: u64,
    ) -> PyResult<bool> {
        // SAFETY: Python passes the current stream of this GPU's primary context, which outlives
        // the call.
        let stream = unsafe { self.gpu.borrow_stream(stream as *mut _) }.map_err(error::gpu)?;
        let at = |address, bytes| on_gpu(Range { address, bytes });
        let format = (&self.codec, Target::X4Over3, self.inputs / 64);
        let weights = &FrozenBuffer::over(&self.gpu, format, self.weight_bytes(), at(weights, self.bytes))
            .map_err(error::gpu)?;
        let tokens = values / u64::from(self.inputs);
        let linear = Linear {
            weights: weights.into(),
            x: at(x, 2 * values),
            bias: (bias != 0).then(|| at(bias, 2 * u64::from(self.outputs))),
            y: at(y, 2 * tokens * u64::from(self.outputs)),
            output: Output::Bf16,
            scratch: at(scratch, scratch_bytes),
            overlaps: false,
        };
        let is_free = || stream.capture_status() == Ok(CU_STREAM_CAPTURE_STATUS_NONE);
        if !x.is_multiple_of(ALIGN) || !linear.has_room() || !is_free() {
            return Ok(false);
        }
        let counters = (counter_bytes > 0).then(|| at(counters, counter_bytes));
        linear.start_with(&stream, counters).map(|()| true).map_err(error::gpu)
    }
}

impl LinearPlan {
    fn header(&self) -> FrozenHeader {
        let (codec, row, bytes) = (self.codec.clone(), self.inputs / 64, self.weight_bytes());
        FrozenHeader { codec, target: Target::X4Over3, bytes, row, sectors: 0 }
    }

    fn weight_bytes(&self) -> u64 {
        2 * u64::from(self.outputs) * u64::from(self.inputs)
    }
}
