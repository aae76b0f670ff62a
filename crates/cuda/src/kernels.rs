//! One safe method for each kernel: it fixes grid, block and the order of arguments.
//!
//! Addresses come from regions and spans whose lengths the callers in `buffer` have checked; kernels themselves
//! check entries against the buffer's end.

use std::sync::Arc;

use cudarc::driver::{CudaFunction, CudaModule, CudaStream, DriverError};

use crate::{
    bytes::DeviceSpan,
    driver::launch,
    layout::{BuddyView, Memory},
    source::{BLOCKS, Params, WARPS},
};

/// Entries that one warp takes.
const TILE: u64 = 32;
/// Threads of a block in kernels that are not built for a number of warps.
const THREADS: u32 = 256;

type Launched = Result<(), DriverError>;

/// The kernels of one codec.
#[derive(Debug)]
pub(crate) struct CodecKernels {
    write: CudaFunction,
    read: CudaFunction,
    gather: CudaFunction,
    scatter: CudaFunction,
    sizes: CudaFunction,
}

impl CodecKernels {
    pub(crate) fn new(module: &Arc<CudaModule>) -> Result<Self, DriverError> {
        Ok(Self {
            write: module.load_function("buddy_write")?,
            read: module.load_function("buddy_read")?,
            gather: module.load_function("buddy_gather")?,
            scatter: module.load_function("buddy_scatter")?,
            sizes: module.load_function("buddy_sizes")?,
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
        // SAFETY: the arguments of `buddy_write` and `buddy_read`; the caller checked `plain` against the buffer.
        unsafe { launch(on, kernel, tiles.div_ceil(u64::from(WARPS)), WARPS * TILE as u32, &arguments) }
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
        let blocks = plain.entries().div_ceil(TILE * u64::from(WARPS));
        let arguments = (*view, plain.address(), list.address(), plain.entries());
        // SAFETY: the arguments of `buddy_gather` and `buddy_scatter`; the caller checked that the list is as long
        // as `plain`, and the kernel checks what is listed.
        unsafe { launch(on, kernel, blocks, WARPS * TILE as u32, &arguments) }
    }

    /// Adds to six 64-bit counters, one for each size class, how many entries of `from` would have it.
    pub(crate) fn sizes(
        &self,
        on: &CudaStream,
        params: Params,
        from: DeviceSpan<'_>,
        counts: DeviceSpan<'_>,
        multiprocessors: u32,
    ) -> Launched {
        // So many blocks a multiprocessor are resident at once; each goes on to the next tiles.
        let most = u64::from(multiprocessors * BLOCKS);
        let blocks = from.entries().div_ceil(TILE * u64::from(WARPS)).min(most);
        let arguments = (params, from.address(), from.entries(), counts.address());
        // SAFETY: the arguments of `buddy_sizes`; the caller checked both spans.
        unsafe { launch(on, &self.sizes, blocks, WARPS * TILE as u32, &arguments) }
    }
}

/// The kernels that belong to no codec.
#[derive(Debug)]
pub(crate) struct CommonKernels {
    stats: CudaFunction,
    constants: CudaFunction,
    places: CudaFunction,
    fill: CudaFunction,
    fill_list: CudaFunction,
    compare: CudaFunction,
    read_slots: CudaFunction,
    read_all: CudaFunction,
    gather_plain: CudaFunction,
    trap: CudaFunction,
}

impl CommonKernels {
    pub(crate) fn new(module: &Arc<CudaModule>) -> Result<Self, DriverError> {
        Ok(Self {
            stats: module.load_function("buddy_stats")?,
            constants: module.load_function("buddy_constants")?,
            places: module.load_function("buddy_places")?,
            fill: module.load_function("buddy_fill")?,
            fill_list: module.load_function("buddy_fill_list")?,
            compare: module.load_function("buddy_compare")?,
            read_slots: module.load_function("buddy_read_slots")?,
            read_all: module.load_function("buddy_read_all")?,
            gather_plain: module.load_function("buddy_gather_plain")?,
            trap: module.load_function("buddy_trap")?,
        })
    }

    /// Adds to ten counters at `counts` what the buffer's nibbles say.
    pub(crate) fn stats(&self, on: &CudaStream, memory: &Memory, counts: u64) -> Launched {
        let blocks = (memory.entries / 8).div_ceil(u64::from(THREADS)).clamp(1, 1024);
        // SAFETY: the arguments of `buddy_stats`; the counters are the buffer's own.
        unsafe { launch(on, &self.stats, blocks, THREADS, &(*memory, counts)) }
    }

    /// Writes the constants that the kernels were compiled with.
    pub(crate) fn constants(&self, on: &CudaStream, to: DeviceSpan<'_>) -> Launched {
        // SAFETY: the argument of `buddy_constants`; the caller gives it 4 KiB.
        unsafe { launch(on, &self.constants, 1, 1, &(to.address(),)) }
    }

    /// Writes five numbers for each listed entry: where it lies.
    pub(crate) fn places(
        &self,
        on: &CudaStream,
        memory: &Memory,
        list: DeviceSpan<'_>,
        to: DeviceSpan<'_>,
    ) -> Launched {
        let count = list.bytes() / 4;
        // SAFETY: the arguments of `buddy_places`; the caller gives 40 bytes for each entry of the list.
        unsafe {
            launch(
                on,
                &self.places,
                count.div_ceil(u64::from(THREADS)),
                THREADS,
                &(*memory, list.address(), count, to.address()),
            )
        }
    }

    /// Fills entries with data of a kind, `share` in 65536 of them noise.
    pub(crate) fn fill(
        &self,
        on: &CudaStream,
        to: DeviceSpan<'_>,
        kind: u32,
        seed: u64,
        share: u32,
    ) -> Launched {
        // SAFETY: the arguments of `buddy_fill`, which writes the span and no more.
        unsafe { launch(on, &self.fill, 8192, THREADS, &(to.address(), to.entries(), kind, seed, share)) }
    }

    /// Fills a list with random numbers below `entries`.
    pub(crate) fn fill_list(&self, on: &CudaStream, to: DeviceSpan<'_>, entries: u64, seed: u64) -> Launched {
        // SAFETY: the arguments of `buddy_fill_list`, which writes the span and no more.
        unsafe { launch(on, &self.fill_list, 1024, THREADS, &(to.address(), to.bytes() / 4, entries, seed)) }
    }

    /// Adds to a counter how many words of two spans differ.
    pub(crate) fn compare(
        &self,
        on: &CudaStream,
        a: DeviceSpan<'_>,
        b: DeviceSpan<'_>,
        count: DeviceSpan<'_>,
    ) -> Launched {
        let arguments = (a.address(), b.address(), a.bytes().min(b.bytes()) / 16, count.address());
        // SAFETY: the arguments of `buddy_compare`, which reads as far as the shorter span reaches.
        unsafe { launch(on, &self.compare, 4096, THREADS, &arguments) }
    }

    /// Copies the first `bytes` of every `stride` bytes of `from`, as many times as both spans allow.
    pub(crate) fn read_slots(
        &self,
        on: &CudaStream,
        from: DeviceSpan<'_>,
        to: DeviceSpan<'_>,
        bytes: u32,
        stride: u32,
    ) -> Launched {
        let slots = (from.bytes() / u64::from(stride)).min(to.bytes() / u64::from(bytes));
        // SAFETY: the arguments of `buddy_read_slots`, which stays in both spans for this many slots.
        unsafe {
            launch(on, &self.read_slots, 4096, THREADS, &(from.address(), to.address(), slots, bytes, stride))
        }
    }

    /// Reads a span and keeps nothing; `count` is 8 bytes that stay as they are, but for one value in 2^32.
    pub(crate) fn read_all(&self, on: &CudaStream, from: DeviceSpan<'_>, count: DeviceSpan<'_>) -> Launched {
        // A warp reads 2 KiB at a time.
        let arguments = (from.address(), from.bytes() / 2048 * 128, count.address());
        // SAFETY: the arguments of `buddy_read_all`, which reads whole pieces of the span and no more.
        unsafe { launch(on, &self.read_all, 132 * 16, THREADS, &arguments) }
    }

    /// Copies listed entries of plain memory.
    pub(crate) fn gather_plain(
        &self,
        on: &CudaStream,
        from: DeviceSpan<'_>,
        to: DeviceSpan<'_>,
        list: DeviceSpan<'_>,
    ) -> Launched {
        let count = to.entries().min(list.bytes() / 4);
        let blocks = (count * 8).div_ceil(4 * u64::from(THREADS)).max(1);
        let arguments = (from.address(), from.entries(), to.address(), list.address(), count);
        // SAFETY: the arguments of `buddy_gather_plain`, which keeps listed numbers within `from`.
        unsafe { launch(on, &self.gather_plain, blocks, THREADS, &arguments) }
    }

    /// Ends the context with an error, for the test of what happens then.
    pub(crate) fn trap(&self, on: &CudaStream) -> Launched {
        // SAFETY: `buddy_trap` has no arguments and touches no memory.
        unsafe { launch(on, &self.trap, 1, 1, &()) }
    }
}
