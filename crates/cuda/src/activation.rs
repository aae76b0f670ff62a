//! Activations between frozen buffers and plain memory: one pass packs what backward needs and
//! writes the output, one reads the output again, one makes gradients of the input.

use buddy_codec::{Codec, CodecKind};
use buddy_core::Target;
use cudarc::driver::CudaStream;

use crate::{DeviceSpan, Error, FrozenBuffer, Gpu};

/// A function of bf16 values, with the bits of PyTorch's kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Activation {
    /// max(x, 0), of which the output is packed.
    Relu,
    /// max(x, 0)², of which max(x, 0) is packed.
    SquaredRelu,
}

impl Activation {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Relu, Self::SquaredRelu];

    /// Its name in Python.
    pub fn name(self) -> &'static str {
        match self {
            Self::Relu => "relu",
            Self::SquaredRelu => "squared_relu",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    /// Its struct in `activation.cuh`.
    pub(crate) fn struct_name(self) -> &'static str {
        match self {
            Self::Relu => "Relu",
            Self::SquaredRelu => "SquaredRelu",
        }
    }
}

/// An activation whose input lies packed, or will, in memory that the caller gives: bf16 values,
/// any codec of theirs, no matrix. Every operation is put on the caller's stream and returns at
/// once.
#[derive(Debug, Clone)]
pub struct PackedActivation<'a> {
    buffer: FrozenBuffer<'a>,
}

impl<'a> PackedActivation<'a> {
    /// An activation of so many bytes of input, [`over`](FrozenBuffer::over) this memory.
    ///
    /// # Errors
    /// As for [`FrozenBuffer::over`], and [`Error::NoKernels`] for a codec that is not bf16's.
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

    /// The same with what overflows in memory of its own; see [`FrozenBuffer::with_overflow`].
    ///
    /// # Errors
    /// As there.
    pub fn with_overflow(self, overflow: DeviceSpan<'a>) -> Result<Self, Error> {
        Ok(Self { buffer: self.buffer.with_overflow(overflow)? })
    }

    /// The same with zeros to add up in; see [`FrozenBuffer::with_sums`].
    ///
    /// # Errors
    /// As there.
    pub fn with_sums(self, sums: DeviceSpan<'a>) -> Result<Self, Error> {
        Ok(Self { buffer: self.buffer.with_sums(sums)? })
    }

    /// Packs what backward needs of the input and writes the output, when the stream gets there;
    /// `told` as for [`pack_and_tell`](FrozenBuffer::pack_and_tell).
    ///
    /// # Errors
    /// [`Error::Shape`] unless input and output have the bytes that were said.
    ///
    /// # Safety
    /// As for [`pack_and_tell`](FrozenBuffer::pack_and_tell).
    pub unsafe fn forward(
        &self,
        on: &CudaStream,
        input: DeviceSpan<'_>,
        output: DeviceSpan<'_>,
        told: u64,
    ) -> Result<(), Error> {
        let output = self.check(output)?.address();
        self.buffer.fill(on, self.check(input)?, output, told)
    }

    /// Writes the output again.
    ///
    /// # Errors
    /// [`Error::Shape`] unless there is room for all of it.
    pub fn output(&self, on: &CudaStream, to: DeviceSpan<'_>) -> Result<(), Error> {
        self.buffer.read(on, 0, self.check(to)?)
    }

    /// Writes the gradients of the input, from those of the output.
    ///
    /// # Errors
    /// [`Error::Shape`] unless both have the bytes that were said.
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
