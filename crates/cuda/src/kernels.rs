//! One safe method for each kernel, which fixes grid, block and the order of arguments.
//!
//! Addresses come from regions and spans whose lengths the callers in `buffer` have checked; the
//! kernels check entries against the buffer's end.

use std::sync::Arc;

use cudarc::driver::{CudaFunction, CudaModule, CudaStream, DriverError};

use crate::{
    bytes::DeviceSpan,
    driver::Launch,
    layout::{BuddyView, Memory},
    source::WARPS,
};

/// Entries per warp.
const TILE: u64 = 32;
/// Threads of a CTA that counts nibbles.
const STATS_THREADS: u32 = 256;

type Launched = Result<(), DriverError>;

/// The kernels of one codec.
#[derive(Debug)]
pub(crate) struct CodecKernels {
    write: CudaFunction,
    read: CudaFunction,
    gather: CudaFunction,
    scatter: CudaFunction,
    stats: CudaFunction,
}

impl CodecKernels {
    pub(crate) fn new(module: &Arc<CudaModule>) -> Result<Self, DriverError> {
        Ok(Self {
            write: module.load_function("buddy_write")?,
            read: module.load_function("buddy_read")?,
            gather: module.load_function("buddy_gather")?,
            scatter: module.load_function("buddy_scatter")?,
            stats: module.load_function("buddy_stats")?,
        })
    }

    /// Compresses `from` into the entries from `first` on.
    pub(crate) fn write(
        &self,
        on: &CudaStream,
        view: &BuddyView,
        from: DeviceSpan<'_>,
        first: u64,
    ) -> Launched {
        self.range(on, &self.write, view, from, first)
    }

    /// Decompresses the entries from `first` on into `to`.
    pub(crate) fn read(&self, on: &CudaStream, view: &BuddyView, to: DeviceSpan<'_>, first: u64) -> Launched {
        self.range(on, &self.read, view, to, first)
    }

    fn range(
        &self,
        on: &CudaStream,
        kernel: &CudaFunction,
        view: &BuddyView,
        plain: DeviceSpan<'_>,
        first: u64,
    ) -> Launched {
        let count = plain.entries();
        // Tiles are aligned to their size, so that a byte of metadata belongs to one tile.
        let tiles = (first % TILE + count).div_ceil(TILE);
        let arguments = (*view, plain.address(), first, count);
        // SAFETY: the arguments of `buddy_write` and `buddy_read`; the caller checked `plain`
        // against the buffer.
        unsafe { grid(tiles).start(on, kernel, &arguments) }
    }

    /// Gathers the listed entries into `to`.
    pub(crate) fn gather(
        &self,
        on: &CudaStream,
        view: &BuddyView,
        to: DeviceSpan<'_>,
        list: DeviceSpan<'_>,
    ) -> Launched {
        self.list(on, &self.gather, view, to, list)
    }

    /// Scatters `from` to the listed entries.
    pub(crate) fn scatter(
        &self,
        on: &CudaStream,
        view: &BuddyView,
        from: DeviceSpan<'_>,
        list: DeviceSpan<'_>,
    ) -> Launched {
        self.list(on, &self.scatter, view, from, list)
    }

    fn list(
        &self,
        on: &CudaStream,
        kernel: &CudaFunction,
        view: &BuddyView,
        plain: DeviceSpan<'_>,
        list: DeviceSpan<'_>,
    ) -> Launched {
        let arguments = (*view, plain.address(), list.address(), plain.entries());
        // SAFETY: the arguments of `buddy_gather` and `buddy_scatter`; the caller checked that the
        // list is as long as `plain`, and the kernel checks its indices.
        unsafe { grid(plain.entries().div_ceil(TILE)).start(on, kernel, &arguments) }
    }

    /// Adds the counts of the buffer's nibbles to ten counters at `counts`.
    pub(crate) fn stats(&self, on: &CudaStream, memory: &Memory, counts: u64) -> Launched {
        let blocks = (memory.entries / 8).div_ceil(u64::from(STATS_THREADS)).clamp(1, 1024);
        // SAFETY: the arguments of `buddy_stats`; the counters are the buffer's own.
        unsafe { Launch::row(blocks, STATS_THREADS).start(on, &self.stats, &(*memory, counts)) }
    }
}

/// One warp per tile.
fn grid(tiles: u64) -> Launch {
    Launch::row(tiles.div_ceil(u64::from(WARPS)), WARPS * TILE as u32)
}
