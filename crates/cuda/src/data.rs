//! Data made on the GPU to try codecs on, and plain operations to compare with.

use buddy_codec::Codec;
use cudarc::driver::CudaStream;
use serde::{Deserialize, Serialize};

use crate::{DeviceSpan, Error, Gpu, driver, source::Params};

/// Kinds of data, in the kernels' numbers (`fill.cuh`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fill {
    /// Nothing to find.
    Noise,
    /// Zeros, but for a word in some pages.
    Zeros,
    /// Every page of another kind.
    Varied,
    /// Integers that grow, with 5 to 12 noisy low bits.
    Ramp,
    /// A smooth field of doubles.
    Field64,
    /// Normal bf16 values, sigma 0.02.
    Weights,
    /// Floats after a ReLU: half of them zero.
    Relu,
    /// fp16 values after a ReLU.
    Halves,
}

impl Gpu {
    /// Fills entries with data; each becomes noise with probability `noise`.
    ///
    /// # Errors
    /// [`Error::Shape`], or what compiler or driver say.
    pub fn make(
        &self,
        on: &CudaStream,
        to: DeviceSpan<'_>,
        fill: Fill,
        seed: u64,
        noise: f64,
    ) -> Result<(), Error> {
        let share = (noise.clamp(0.0, 1.0) * 65536.0).round() as u32;
        let launched = self.common()?.fill(on, to.check_entries()?, fill as u32, seed, share);
        self.check("start making data", launched)
    }

    /// Fills a list with random numbers below `entries`.
    ///
    /// # Errors
    /// [`Error::Shape`], or what compiler or driver say.
    pub fn make_list(
        &self,
        on: &CudaStream,
        to: DeviceSpan<'_>,
        entries: u64,
        seed: u64,
    ) -> Result<(), Error> {
        let to = to.check(4, 4, "32-bit numbers")?;
        self.check("start making a list", self.common()?.fill_list(on, to, entries.max(1), seed))
    }

    /// Adds to six 64-bit counters how many entries of `from` would have each size class.
    ///
    /// # Errors
    /// [`Error::Shape`], or what compiler or driver say.
    pub fn size_histogram(
        &self,
        on: &CudaStream,
        codec: &Codec,
        from: DeviceSpan<'_>,
        counts: DeviceSpan<'_>,
    ) -> Result<(), Error> {
        let from = from.check_entries()?;
        let counts = counts.check_exact(48, 8, "six 64-bit counters")?;
        if from.entries() == 0 {
            return Ok(());
        }
        let kernels = self.codec(codec.kind())?;
        let launched = kernels.sizes(on, Params::of(codec), from, counts, self.multiprocessors());
        self.check("start counting sizes", launched)
    }

    /// Adds to a 64-bit counter how many 32-bit words of two spans of one length differ.
    ///
    /// # Errors
    /// [`Error::Shape`], or what compiler or driver say.
    pub fn count_differences(
        &self,
        on: &CudaStream,
        a: DeviceSpan<'_>,
        b: DeviceSpan<'_>,
        count: DeviceSpan<'_>,
    ) -> Result<(), Error> {
        let (a, b) = (a.check_entries()?, b.check_entries()?);
        let b = b.check_exact(a.bytes(), 16, "as many bytes as it is compared with")?;
        let count = count.check_exact(8, 8, "a 64-bit counter")?;
        self.check("start comparing", self.common()?.compare(on, a, b, count))
    }

    /// Copies entries as the driver does: what bounds everything else.
    ///
    /// # Errors
    /// [`Error::Shape`], or what compiler or driver say.
    pub fn copy(&self, on: &CudaStream, from: DeviceSpan<'_>, to: DeviceSpan<'_>) -> Result<(), Error> {
        self.alive()?;
        self.check("start copying", driver::copy(on, from.check_entries()?, to.check_entries()?))
    }

    /// Copies the entries of plain memory whose numbers are listed; a number past the end gives
    /// the first entry.
    ///
    /// # Errors
    /// [`Error::Shape`], or what compiler or driver say.
    pub fn gather_plain(
        &self,
        on: &CudaStream,
        from: DeviceSpan<'_>,
        to: DeviceSpan<'_>,
        list: DeviceSpan<'_>,
    ) -> Result<(), Error> {
        let (from, to, list) =
            (from.check_entries()?, to.check_entries()?, list.check(4, 4, "32-bit numbers")?);
        if from.entries() == 0 && to.entries() > 0 {
            return Err(Error::Shape { bytes: 0, address: from.address(), need: "at least one entry" });
        }
        self.check("start gathering", self.common()?.gather_plain(on, from, to, list))
    }

    /// Ends the context with an error that stays, to see what the rest makes of it.
    ///
    /// # Errors
    /// What the driver says.
    pub fn break_context(&self, on: &CudaStream) -> Result<(), Error> {
        self.check("start the trap", self.common()?.trap(on))
    }
}
