//! Batch normalisation with ReLU, recomputed from known statistics (`norm.cu`).

use cudarc::driver::{CudaFunction, CudaStream};

use crate::{DeviceSpan, Error, Gpu, Source, driver::Launch};

/// Threads of a CTA, values per access, and the most CTAs, a few per SM.
const THREADS: u64 = 256;
const VALUES: u64 = 8;
const BLOCKS: u64 = 1056;

/// The kernel.
#[derive(Debug, Clone)]
pub struct NormRelu {
    gpu: Gpu,
    kernel: CudaFunction,
}

/// Parameters of a batch normalisation's channels: fp32 means and inverse deviations, bf16 weights
/// and shifts.
#[derive(Debug, Clone, Copy)]
pub struct Channels<'a> {
    /// Mean of each channel.
    pub mean: DeviceSpan<'a>,
    /// Inverse deviation of each channel.
    pub deviation: DeviceSpan<'a>,
    /// Factor of each channel.
    pub weight: DeviceSpan<'a>,
    /// Summand of each channel.
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
    /// Compiles the kernel, or loads it from the cache.
    ///
    /// # Errors
    /// An error of the compiler or the driver.
    pub fn new(gpu: &Gpu) -> Result<Self, Error> {
        let module = gpu.module(&Source::norm())?;
        let kernel = gpu.check("find the kernels", module.load_function("normalise_relu"))?;
        Ok(Self { gpu: gpu.clone(), kernel })
    }

    /// Returns true if the kernel supports this number of channels, which a CTA's threads must
    /// share evenly.
    pub fn takes(channels: u64) -> bool {
        channels.is_multiple_of(VALUES) && channels > 0 && (THREADS * VALUES).is_multiple_of(channels)
    }

    /// Enqueues `y` from `x`, bf16 values with channels last.
    ///
    /// # Errors
    /// [`Error::Shape`] for memory of the wrong size, or a driver error.
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
