//! The kernels of `lab.cu`: test data, and plain operations for comparison.

use buddy_cuda::{DeviceSpan, Launch, Memory};
use cudarc::driver::result::memcpy_dtod_async;
use serde::{Deserialize, Serialize};

use crate::{Error, Lab};

/// Threads of a block.
const THREADS: u32 = 256;

/// Kinds of data, in the kernels' numbers (`fill.cuh`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fill {
    /// Random bits, incompressible.
    Noise,
    /// Zeros, but for a word in some pages.
    Zeros,
    /// A different kind in every page.
    Varied,
    /// Increasing integers with 5 to 12 noisy low bits.
    Ramp,
    /// A smooth field of doubles.
    Field64,
    /// Normal bf16 values, sigma 0.02.
    Weights,
    /// Floats after a ReLU: half of them zero.
    Relu,
    /// fp16 values after a ReLU.
    Halves,
    /// Doubles, each one of 200.
    Values,
    /// The eight corners of a mesh's cells, 32 bits each.
    Corners,
    /// Doubles: random integers, divided by the largest.
    Quotients,
}

impl Lab {
    /// Fills entries with data, of which each becomes noise with probability `noise`, and waits.
    ///
    /// # Errors
    /// If the span is not whole entries, or a driver error.
    pub fn make(&self, to: DeviceSpan<'_>, fill: Fill, seed: u64, noise: f64) -> Result<(), Error> {
        let to = to.check_entries()?;
        let share = (noise.clamp(0.0, 1.0) * 65536.0).round() as u32;
        let arguments = (to.address(), to.entries(), fill as u32, seed, share);
        // SAFETY: the arguments of `buddy_fill`, which writes only the span.
        unsafe { self.own.start("buddy_fill", Launch::row(8192, THREADS), &arguments)? };
        self.wait()
    }

    /// Fills a list with random numbers below `entries`.
    pub(crate) fn make_list(&self, to: DeviceSpan<'_>, entries: u64, seed: u64) -> Result<(), Error> {
        let to = to.check(4, 4, "32-bit numbers")?;
        let arguments = (to.address(), to.bytes() / 4, entries.max(1), seed);
        // SAFETY: the arguments of `buddy_fill_list`, which writes only the span.
        unsafe { self.own.start("buddy_fill_list", Launch::row(1024, THREADS), &arguments) }
    }

    /// Adds the number of different 32-bit words to a counter, up to the length of the shorter
    /// span.
    pub(crate) fn compare(
        &self,
        a: DeviceSpan<'_>,
        b: DeviceSpan<'_>,
        count: DeviceSpan<'_>,
    ) -> Result<(), Error> {
        let (a, b) = (a.check_entries()?, b.check_entries()?);
        let arguments = (a.address(), b.address(), a.bytes().min(b.bytes()) / 16, count.address());
        // SAFETY: the arguments of `buddy_compare`, which reads no more than that.
        unsafe { self.own.start("buddy_compare", Launch::row(4096, THREADS), &arguments) }
    }

    /// Copies with the driver, up to the length of the shorter span: an upper bound for all other
    /// operations.
    pub(crate) fn copy(&self, from: DeviceSpan<'_>, to: DeviceSpan<'_>) -> Result<(), Error> {
        let bytes = from.bytes().min(to.bytes()) as usize;
        // SAFETY: both spans are memory of this GPU for as long as the work on them lasts.
        let started = self.stream.context().bind_to_thread().and_then(|()| unsafe {
            memcpy_dtod_async(to.address(), from.address(), bytes, self.stream.cu_stream())
        });
        Ok(self.gpu.check("start copying", started)?)
    }

    /// Gathers entries of plain memory; an index past the end reads the first entry.
    pub(crate) fn gather_plain(
        &self,
        from: DeviceSpan<'_>,
        to: DeviceSpan<'_>,
        list: DeviceSpan<'_>,
    ) -> Result<(), Error> {
        let (from, to) = (from.check_entries()?, to.check_entries()?);
        let count = to.entries().min(list.check(4, 4, "32-bit numbers")?.bytes() / 4);
        let blocks = (count * 8).div_ceil(4 * u64::from(THREADS)).max(1);
        let arguments = (from.address(), from.entries(), to.address(), list.address(), count);
        // SAFETY: the arguments of `buddy_gather_plain`, which keeps listed numbers within `from`.
        unsafe { self.own.start("buddy_gather_plain", Launch::row(blocks, THREADS), &arguments) }
    }

    /// Copies the first `bytes` of every `stride` bytes of `from`, as often as both spans allow.
    pub(crate) fn read_slots(
        &self,
        from: DeviceSpan<'_>,
        to: DeviceSpan<'_>,
        bytes: u32,
        stride: u32,
    ) -> Result<(), Error> {
        let slots = (from.bytes() / u64::from(stride)).min(to.bytes() / u64::from(bytes));
        let arguments = (from.address(), to.address(), slots, bytes, stride);
        // SAFETY: the arguments of `buddy_read_slots`, which stays in both spans for this many
        // slots.
        unsafe { self.own.start("buddy_read_slots", Launch::row(4096, THREADS), &arguments) }
    }

    /// Reads a span and discards it; the 8 bytes of `count` change for one value in 2^32 only.
    pub(crate) fn read_all(&self, from: DeviceSpan<'_>, count: DeviceSpan<'_>) -> Result<(), Error> {
        // A warp reads 2 KiB at a time.
        let arguments = (from.address(), from.bytes() / 2048 * 128, count.address());
        let blocks = u64::from(16 * self.gpu.multiprocessors());
        // SAFETY: the arguments of `buddy_read_all`, which reads only whole pieces of the span.
        unsafe { self.own.start("buddy_read_all", Launch::row(blocks, THREADS), &arguments) }
    }

    /// Writes the constants that the kernels were compiled with, less than 4 KiB of them.
    pub(crate) fn constants(&self, to: DeviceSpan<'_>) -> Result<(), Error> {
        let to = to.check(4096, 4, "4 KiB")?;
        // SAFETY: the argument of `buddy_constants`, which has the room that it needs.
        unsafe { self.own.start("buddy_constants", Launch::row(1, 1), &(to.address(),)) }
    }

    /// Writes the addresses of each listed entry, five 64-bit numbers.
    pub(crate) fn places(
        &self,
        memory: Memory,
        list: DeviceSpan<'_>,
        to: DeviceSpan<'_>,
    ) -> Result<(), Error> {
        let count = (list.bytes() / 4).min(to.bytes() / 40);
        let blocks = count.div_ceil(u64::from(THREADS));
        let arguments = (memory, list.address(), count, to.address());
        // SAFETY: the arguments of `buddy_places`, with 40 bytes for each listed entry.
        unsafe { self.own.start("buddy_places", Launch::row(blocks, THREADS), &arguments) }
    }

    /// Ends the context with a sticky error, and waits for it, to test the reaction.
    ///
    /// # Errors
    /// Always: that the context is lost, unless it was lost before.
    pub fn break_context(&self) -> Result<(), Error> {
        // SAFETY: `buddy_trap` has no arguments and touches no memory.
        unsafe { self.own.start("buddy_trap", Launch::row(1, 1), &())? };
        self.wait()
    }
}
