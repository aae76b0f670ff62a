//! Batch normalisation with the ReLU after it, done again from a mean and a deviation that are
//! known (`norm.cu`).

use cudarc::driver::{CudaFunction, CudaStream};

use crate::{DeviceSpan, Error, Gpu, Source, driver::Launch};

/// Threads of a block, values that one takes at a time, and blocks at most: a few for each
/// multiprocessor.
const THREADS: u64 = 256;
const VALUES: u64 = 8;
const BLOCKS: u64 = 1056;

/// The kernel.
#[derive(Debug, Clone)]
pub struct NormRelu {
    gpu: Gpu,
    kernel: CudaFunction,
}

/// What batch normalisation knows of its channels: fp32 means and inverse deviations, bf16 weights
/// and shifts.
#[derive(Debug, Clone, Copy)]
pub struct Channels<'a> {
    /// The mean of each.
    pub mean: DeviceSpan<'a>,
    /// One over the deviation of each.
    pub deviation: DeviceSpan<'a>,
    /// What values are multiplied with.
    pub weight: DeviceSpan<'a>,
    /// What is added.
    pub shift: DeviceSpan<'a>,
}

/// The struct of `norm.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Normalising {
    x: u64,
    y: u64,
    mean: u64,
    deviation: u64,
    weight: u64,
    shift: u64,
    chunks: u64,
    channels: u32,
    reserved: u32,
}

impl NormRelu {
    /// Compiles the kernel, or takes it from the cache of compiled ones.
    ///
    /// # Errors
    /// What compiler or driver say.
    pub fn new(gpu: &Gpu) -> Result<Self, Error> {
        let module = gpu.module(&Source::norm())?;
        let kernel = gpu.check("find the kernels", module.load_function("normalise_relu"))?;
        Ok(Self { gpu: gpu.clone(), kernel })
    }

    /// Whether so many channels are ones that the kernel takes: threads of a block share them
    /// evenly.
    pub fn takes(channels: u64) -> bool {
        channels.is_multiple_of(VALUES) && channels > 0 && (THREADS * VALUES).is_multiple_of(channels)
    }

    /// `y` from `x`, bf16 values whose channels lie side by side, when the stream gets there.
    ///
    /// # Errors
    /// [`Error::Shape`] for memory that does not fit, or what the driver says.
    pub fn run(
        &self,
        on: &CudaStream,
        x: DeviceSpan<'_>,
        y: DeviceSpan<'_>,
        of: &Channels<'_>,
    ) -> Result<(), Error> {
        let channels = of.mean.bytes() / 4;
        let shape =
            |span: DeviceSpan<'_>, need| Error::Shape { bytes: span.bytes(), address: span.address(), need };
        if !Self::takes(channels) {
            return Err(shape(of.mean, "a number of channels that divides 2048, 8 at least"));
        }
        let x = x.check(2 * channels, 16, "whole rows of channels, aligned to 16 bytes")?;
        let y = y.check(2 * channels, 16, "whole rows of channels, aligned to 16 bytes")?;
        if x.bytes() != y.bytes() || of.deviation.bytes() != 4 * channels {
            return Err(shape(y, "as many values as the input, and a deviation for each mean"));
        }
        for span in [of.weight, of.shift] {
            if span.bytes() != 2 * channels || !span.address().is_multiple_of(4) {
                return Err(shape(span, "bf16, one for each channel, aligned to 4 bytes"));
            }
        }
        let chunks = x.bytes() / 2 / VALUES;
        if chunks == 0 {
            return Ok(());
        }
        let arguments = Normalising {
            x: x.address(),
            y: y.address(),
            mean: of.mean.address(),
            deviation: of.deviation.address(),
            weight: of.weight.address(),
            shift: of.shift.address(),
            chunks,
            channels: channels as u32,
            reserved: 0,
        };
        let launch = Launch::row(chunks.div_ceil(THREADS).min(BLOCKS), THREADS as u32);
        // SAFETY: the arguments of the kernel, whose sizes were compared above.
        let started = unsafe { launch.start(on, &self.kernel, &(arguments,)) };
        self.gpu.check("start normalising", started)
    }
}
