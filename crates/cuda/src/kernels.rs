//! One safe method for each kernel: it fixes grid, block and the order of arguments.
//!
//! Addresses come from regions and spans whose lengths the callers in `buffer` have checked;
//! kernels themselves check entries against the buffer's end.

use std::sync::Arc;

use cudarc::driver::{CudaFunction, CudaModule, CudaStream, DriverError};

use crate::{
    bytes::DeviceSpan,
    driver::Launch,
    layout::{BuddyView, Memory},
    source::WARPS,
};

/// Entries that one warp takes.
const TILE: u64 = 32;
/// Threads of a block that counts nibbles.
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

    /// Entries from `first` on become those of `from`.
    pub(crate) fn write(
        &self,
        on: &CudaStream,
        view: &BuddyView,
        from: DeviceSpan<'_>,
        first: u64,
    ) -> Launched {
        self.range(on, &self.write, view, from, first)
    }

    /// `to` becomes the entries from `first` on.
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
        // Tiles lie on multiples of their size, so that a byte of metadata belongs to one of them.
        let tiles = (first % TILE + count).div_ceil(TILE);
        let arguments = (*view, plain.address(), first, count);
        // SAFETY: the arguments of `buddy_write` and `buddy_read`; the caller checked `plain`
        // against the buffer.
        unsafe { grid(tiles).start(on, kernel, &arguments) }
    }

    /// `to` becomes the listed entries.
    pub(crate) fn gather(
        &self,
        on: &CudaStream,
        view: &BuddyView,
        to: DeviceSpan<'_>,
        list: DeviceSpan<'_>,
    ) -> Launched {
        self.list(on, &self.gather, view, to, list)
    }

    /// The listed entries become those of `from`.
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
        // list is as long as `plain`, and the kernel checks what is listed.
        unsafe { grid(plain.entries().div_ceil(TILE)).start(on, kernel, &arguments) }
    }

    /// Adds to ten counters at `counts` what the buffer's nibbles say.
    pub(crate) fn stats(&self, on: &CudaStream, memory: &Memory, counts: u64) -> Launched {
        let blocks = (memory.entries / 8).div_ceil(u64::from(STATS_THREADS)).clamp(1, 1024);
        // SAFETY: the arguments of `buddy_stats`; the counters are the buffer's own.
        unsafe { Launch::row(blocks, STATS_THREADS).start(on, &self.stats, &(*memory, counts)) }
    }
}

/// A warp for each tile.
fn grid(tiles: u64) -> Launch {
    Launch::row(tiles.div_ceil(u64::from(WARPS)), WARPS * TILE as u32)
}
