//! Activations between frozen buffers and plain memory. One pass packs the values saved for
//! backward and writes the output, one recomputes the output, one computes the gradient of the
//! input.

use buddy_codec::{Codec, CodecKind};
use buddy_core::Target;
use cudarc::driver::CudaStream;

use crate::{DeviceSpan, Error, FrozenBuffer, Gpu};

/// An activation of bf16 values, bit-identical to PyTorch's kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Activation {
    /// max(x, 0); packs the output.
    Relu,
    /// max(x, 0)²; packs max(x, 0).
    SquaredRelu,
}

impl Activation {
    /// All activations.
    pub const ALL: [Self; 2] = [Self::Relu, Self::SquaredRelu];

    /// Returns the name in Python.
    pub fn name(self) -> &'static str {
        match self {
            Self::Relu => "relu",
            Self::SquaredRelu => "squared_relu",
        }
    }

    /// Finds an activation by its name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    /// Returns the name of its struct in `activation.cuh`.
    pub(crate) fn struct_name(self) -> &'static str {
        match self {
            Self::Relu => "Relu",
            Self::SquaredRelu => "SquaredRelu",
        }
    }
}

/// An activation whose input is packed, or will be, in memory that the caller gives: bf16 values, a
/// bf16 codec, no matrix. Every operation is enqueued on the caller's stream and returns at once.
#[derive(Debug, Clone)]
pub struct PackedActivation<'a> {
    buffer: FrozenBuffer<'a>,
}

impl<'a> PackedActivation<'a> {
    /// Creates an activation of `bytes` of input [`over`](FrozenBuffer::over) this memory.
    ///
    /// # Errors
    /// As for [`FrozenBuffer::over`], and [`Error::NoKernels`] for a codec that is not for bf16.
    pub fn over(
        gpu: &Gpu,
        activation: Activation,
        (codec, target): (&Codec, Target),
        bytes: u64,
        memory: DeviceSpan<'a>,
    ) -> Result<Self, Error> {
        if codec.kind() != CodecKind::Bf16 {
            return Err(Error::NoKernels { codec: codec.kind() });
        }
        let kernels = gpu.frozen(codec.kind(), Some(activation))?;
        let buffer = FrozenBuffer::over(gpu, (codec, target, 0), bytes, memory)?.with_kernels(kernels);
        Ok(Self { buffer })
    }

    /// Stores the overflow in separate memory; see [`FrozenBuffer::with_overflow`].
    ///
    /// # Errors
    /// As for [`FrozenBuffer::with_overflow`].
    pub fn with_overflow(self, overflow: DeviceSpan<'a>) -> Result<Self, Error> {
        Ok(Self { buffer: self.buffer.with_overflow(overflow)? })
    }

    /// Adds zeroed memory for sums; see [`FrozenBuffer::with_sums`].
    ///
    /// # Errors
    /// As for [`FrozenBuffer::with_sums`].
    pub fn with_sums(self, sums: DeviceSpan<'a>) -> Result<Self, Error> {
        Ok(Self { buffer: self.buffer.with_sums(sums)? })
    }

    /// Packs the values saved for backward and writes the output, in stream order; `status` as for
    /// [`pack_with_status`](FrozenBuffer::pack_with_status).
    ///
    /// # Errors
    /// [`Error::Shape`] unless input and output have the buffer's size.
    ///
    /// # Safety
    /// As for [`pack_with_status`](FrozenBuffer::pack_with_status).
    pub unsafe fn forward(
        &self,
        on: &CudaStream,
        input: DeviceSpan<'_>,
        output: DeviceSpan<'_>,
        status: u64,
    ) -> Result<(), Error> {
        let output = self.check(output)?.address();
        self.buffer.fill(on, self.check(input)?, output, status)
    }

    /// Recomputes the output.
    ///
    /// # Errors
    /// [`Error::Shape`] unless `to` holds all of it.
    pub fn output(&self, on: &CudaStream, to: DeviceSpan<'_>) -> Result<(), Error> {
        self.buffer.read(on, 0, self.check(to)?)
    }

    /// Computes the gradient of the input from that of the output.
    ///
    /// # Errors
    /// [`Error::Shape`] unless both have the buffer's size.
    pub fn backward(
        &self,
        on: &CudaStream,
        of_output: DeviceSpan<'_>,
        to: DeviceSpan<'_>,
    ) -> Result<(), Error> {
        self.buffer.read_gradients(on, self.check(of_output)?, self.check(to)?)
    }

    fn check<'b>(&self, span: DeviceSpan<'b>) -> Result<DeviceSpan<'b>, Error> {
        let span = span.check_entries()?;
        if span.bytes() == self.buffer.header().bytes {
            return Ok(span);
        }
        Err(Error::Shape {
            bytes: span.bytes(),
            address: span.address(),
            need: "as many bytes as the activation has",
        })
    }
}
