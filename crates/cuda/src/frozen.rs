//! Frozen buffers on the GPU (`docs/reference/format.md`): packed once into memory that the caller
//! gives, then read in place.

use std::{collections::HashMap, sync::Arc};

use buddy_codec::{Codec, CodecKind, FROZEN_HEADER_BYTES, FrozenHeader};
use buddy_core::{ENTRY_BYTES, SECTOR_BYTES, Target};
use cudarc::driver::{CudaFunction, CudaModule, CudaStream, DriverError};

use crate::{
    Activation, DeviceSpan, Error, Gpu,
    driver::{self, Launch},
    layout::{FrozenView, Order, Packing, Reading},
    source::Params,
};

/// Threads of a CTA that packs or reads: two warps, a page.
const THREADS: u32 = 64;
/// CTAs that make the index, and their threads. Their sums temporarily occupy the last words of the
/// header.
const SCANNERS: (u64, u32) = (16, 1024);
const SUMS_IN_HEADER: u64 = 64;
/// Threads of a CTA that makes a part of the index and moves the part's overflow; the most such
/// parts; and the fewest pages of one.
const FINISHERS: u32 = 512;
const MOST_PARTS: u64 = FrozenBuffer::SUMS_BYTES / 4 - 1;
const LEAST_PART: u64 = 8;
/// Threads of a CTA that moves overflow, and entries that each examines.
const OVERFLOW: (u32, u64) = (128, 8);
/// Places that a CTA of two warps reads.
const PAGE: u64 = 64;
/// Rows of a matrix that are stored together.
pub(crate) const TILE_ROWS: u64 = 16;

/// Loaded kernels by codec and activation.
pub(crate) type FrozenPrograms = HashMap<(CodecKind, Option<Activation>), Arc<FrozenKernels>>;

/// The kernels of a codec's frozen buffers.
#[derive(Debug)]
pub(crate) struct FrozenKernels {
    pack: CudaFunction,
    index: CudaFunction,
    overflow: CudaFunction,
    finish: CudaFunction,
    read: CudaFunction,
    back: CudaFunction,
    gather: CudaFunction,
}

impl FrozenKernels {
    pub(crate) fn new(module: &Arc<CudaModule>) -> Result<Self, DriverError> {
        Ok(Self {
            pack: module.load_function("frozen_pack")?,
            index: module.load_function("frozen_index")?,
            overflow: module.load_function("frozen_overflow")?,
            finish: module.load_function("frozen_finish")?,
            read: module.load_function("frozen_read")?,
            back: module.load_function("frozen_back")?,
            gather: module.load_function("frozen_gather")?,
        })
    }
}

/// A frozen buffer in borrowed device memory. Operations, packing included, are enqueued on the
/// caller's stream and return at once, without waiting or allocating, so that they can be captured
/// in a graph.
#[derive(Debug, Clone)]
pub struct FrozenBuffer<'a> {
    gpu: Gpu,
    kernels: Arc<FrozenKernels>,
    header: FrozenHeader,
    memory: DeviceSpan<'a>,
    /// Separate memory for the overflow, if any.
    overflow: Option<DeviceSpan<'a>>,
    /// Zeroed memory for packing's sums, if any.
    sums: Option<DeviceSpan<'a>>,
}

impl<'a> FrozenBuffer<'a> {
    /// Size of the memory for [`with_sums`](Self::with_sums).
    pub const SUMS_BYTES: u64 = 1024;

    /// Returns the memory that `bytes` of data need if `sectors` sectors overflow. A survey counts
    /// them: none for an entry that fits the target, otherwise those beyond it.
    pub fn room(codec: &Codec, target: Target, row: u32, bytes: u64, sectors: u32) -> u64 {
        FrozenHeader { codec: codec.clone(), target, bytes, row, sectors }.parts().total
    }

    /// Opens a frozen buffer in this memory, with the header that the memory begins with.
    ///
    /// # Errors
    /// [`Error::Shape`] if the memory is too small or not aligned to 128 bytes,
    /// [`Error::NoKernels`], or an error of the compiler or the driver.
    pub fn new(gpu: &Gpu, header: FrozenHeader, memory: DeviceSpan<'a>) -> Result<Self, Error> {
        let memory = memory.check(1, FROZEN_HEADER_BYTES as u64, "memory that is aligned to 128 bytes")?;
        if memory.bytes() < header.parts().total {
            let need = "as many bytes as the header says";
            return Err(Error::Shape { bytes: memory.bytes(), address: memory.address(), need });
        }
        let kernels = gpu.frozen(header.codec.kind(), None)?;
        Ok(Self { gpu: gpu.clone(), kernels, header, memory, overflow: None, sums: None })
    }

    /// Describes a frozen buffer of `bytes` of data in this memory, packed already or to be packed.
    /// The memory after the other parts is for overflow. `row` is 0, or the entries of a matrix
    /// row.
    ///
    /// # Errors
    /// [`Error::Shape`] for memory that is too small even without overflow, or as for
    /// [`new`](Self::new).
    pub fn over(
        gpu: &Gpu,
        (codec, target, row): (&Codec, Target, u32),
        bytes: u64,
        memory: DeviceSpan<'a>,
    ) -> Result<Self, Error> {
        let header = FrozenHeader { codec: codec.clone(), target, bytes, row, sectors: 0 };
        let mut buffer = Self::new(gpu, header, memory)?;
        let left = memory.bytes() - buffer.header.parts().overflow.start;
        buffer.header.sectors = u32::try_from(left / SECTOR_BYTES as u64).unwrap_or(u32::MAX);
        Ok(buffer)
    }

    /// Stores the overflow in separate memory, for example pinned host memory of the largest
    /// possible size, which cannot overflow. Both parts are needed to read the buffer.
    ///
    /// # Errors
    /// [`Error::Shape`] unless the memory is whole sectors.
    pub fn with_overflow(mut self, overflow: DeviceSpan<'a>) -> Result<Self, Error> {
        let sector = SECTOR_BYTES as u64;
        let overflow = overflow.check(sector, sector, "whole sectors")?;
        self.header.sectors = u32::try_from(overflow.bytes() / sector).unwrap_or(u32::MAX);
        self.overflow = Some(overflow);
        Ok(self)
    }

    /// Uses [`SUMS_BYTES`](Self::SUMS_BYTES) of zeroed memory for packing's sums. Packing then
    /// launches two kernels instead of a memset and three kernels, and leaves the memory zeroed.
    ///
    /// # Errors
    /// [`Error::Shape`] unless the memory has that size.
    pub fn with_sums(mut self, sums: DeviceSpan<'a>) -> Result<Self, Error> {
        let need = "1024 bytes of zeros";
        let sums = sums.check(Self::SUMS_BYTES, 4, need)?;
        if sums.bytes() != Self::SUMS_BYTES {
            return Err(Error::Shape { bytes: sums.bytes(), address: sums.address(), need });
        }
        self.sums = Some(sums);
        Ok(self)
    }

    /// Packs `from` into a buffer [`over`](Self::over) this memory, in stream order. If the
    /// overflow does not fit, none is written, and the header is invalid but for the number of
    /// sectors needed.
    ///
    /// # Errors
    /// [`Error::Shape`] for memory that is too small even without overflow, or if `from` is not
    /// whole entries or not whole rows.
    pub fn pack(
        gpu: &Gpu,
        on: &CudaStream,
        how: (&Codec, Target, u32),
        from: DeviceSpan<'_>,
        memory: DeviceSpan<'a>,
    ) -> Result<Self, Error> {
        // SAFETY: `status` is 0.
        unsafe { Self::pack_with_status(gpu, on, how, from, memory, 0) }
    }

    /// [`pack`](Self::pack) that also writes the number of overflow sectors to a 32-bit word of the
    /// host, so that the owner learns without waiting whether they fit. Nothing is written for
    /// empty data.
    ///
    /// # Errors
    /// As for [`pack`](Self::pack).
    ///
    /// # Safety
    /// `status` is 0 or the address of pinned host memory that the GPU reaches, writable until the
    /// stream has passed this call.
    pub unsafe fn pack_with_status(
        gpu: &Gpu,
        on: &CudaStream,
        how: (&Codec, Target, u32),
        from: DeviceSpan<'_>,
        memory: DeviceSpan<'a>,
        status: u64,
    ) -> Result<Self, Error> {
        let buffer = Self::over(gpu, how, from.bytes(), memory)?;
        // SAFETY: the caller's promise.
        unsafe { buffer.pack_from(on, from, status) }?;
        Ok(buffer)
    }

    /// Packs into this buffer like [`pack_with_status`](Self::pack_with_status).
    ///
    /// # Errors
    /// [`Error::Shape`] unless `from` is whole entries, whole rows of a matrix, and of the buffer's
    /// size.
    ///
    /// # Safety
    /// As for [`pack_with_status`](Self::pack_with_status).
    pub unsafe fn pack_from(&self, on: &CudaStream, from: DeviceSpan<'_>, status: u64) -> Result<(), Error> {
        let whole = ENTRY_BYTES as u64 * u64::from(self.header.row).max(1);
        let from = from.check(whole, 16, "whole entries, and whole rows of a matrix, aligned to 16")?;
        if from.bytes() != self.header.bytes {
            let need = "as many bytes as the buffer is for";
            return Err(Error::Shape { bytes: from.bytes(), address: from.address(), need });
        }
        self.fill(on, from, 0, status)
    }

    /// Returns the same buffer with other kernels.
    pub(crate) fn with_kernels(self, kernels: Arc<FrozenKernels>) -> Self {
        Self { kernels, ..self }
    }

    /// Packs `from`, which has the buffer's size; an activation's output goes to the address `out`.
    pub(crate) fn fill(
        &self,
        on: &CudaStream,
        from: DeviceSpan<'_>,
        out: u64,
        status: u64,
    ) -> Result<(), Error> {
        if self.header.entries() == 0 {
            return Ok(());
        }
        self.gpu.check("start packing", self.start_packing(on, from, self.head()?, (out, status)))
    }

    /// Returns the words of the finished header.
    fn head(&self) -> Result<[u32; 32], Error> {
        let unfit = |_| Error::NoKernels { codec: self.header.codec.kind() };
        // The kernel fills in the number of sectors.
        let bytes = FrozenHeader { sectors: 0, ..self.header.clone() }.encode().map_err(unfit)?;
        Ok(std::array::from_fn(|i| u32::from_le_bytes(*bytes[4 * i..].first_chunk().expect("four bytes"))))
    }

    fn start_packing(
        &self,
        on: &CudaStream,
        from: DeviceSpan<'_>,
        head: [u32; 32],
        (out, status): (u64, u64),
    ) -> Result<(), DriverError> {
        let (view, pages) = (self.view(), self.header.pages());
        let (sums, part_pages) = match self.sums {
            Some(sums) => (sums.address(), pages.div_ceil(MOST_PARTS).max(LEAST_PART)),
            None => (self.memory.address() + SUMS_IN_HEADER, pages.div_ceil(SCANNERS.0)),
        };
        let packing = Packing {
            from: from.address(),
            device: view.device,
            nibbles: view.nibbles,
            index: view.index,
            overflow: view.overflow,
            header: self.memory.address(),
            status,
            sums,
            out,
            order: view.order,
            device_bytes: view.device_bytes,
            capacity: view.sectors,
            part_pages: u32::try_from(part_pages).expect("fewer than 2^32 pages"),
            reserved: 0,
            params: Params::of(&self.header.codec),
            head,
        };
        let (packs, arguments) = (Launch::row(pages, THREADS), (packing,));
        if self.sums.is_some() {
            let finishes = Launch::row(pages.div_ceil(part_pages), FINISHERS);
            let finishes = Launch { overlaps: self.gpu.overlaps(), ..finishes };
            // SAFETY: as below; the second kernel synchronises with the first.
            return unsafe {
                packs.start(on, &self.kernels.pack, &arguments)?;
                finishes.start(on, &self.kernels.finish, &arguments)
            };
        }
        driver::fill(on, self.memory.part(0..FROZEN_HEADER_BYTES as u64), 0)?;
        let moves = Launch::row((pages * PAGE / OVERFLOW.1).div_ceil(u64::from(OVERFLOW.0)), OVERFLOW.0);
        // SAFETY: these are the kernels' arguments; the memory has all parts, and as many sectors
        // as stated.
        unsafe {
            packs.start(on, &self.kernels.pack, &arguments)?;
            Launch::row(SCANNERS.0, SCANNERS.1).start(on, &self.kernels.index, &arguments)?;
            moves.start(on, &self.kernels.overflow, &arguments)
        }
    }

    /// Returns the header. After [`pack`](Self::pack) its sectors are the capacity of the overflow.
    pub fn header(&self) -> &FrozenHeader {
        &self.header
    }

    /// Returns the number of entries.
    pub fn entries(&self) -> u64 {
        self.header.entries()
    }

    pub(crate) fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Returns the addresses of the parts, as kernels take them.
    pub(crate) fn view(&self) -> FrozenView {
        let (base, parts) = (self.memory.address(), self.header.parts());
        FrozenView {
            device: base + parts.device.start,
            nibbles: base + parts.nibbles.start,
            index: base + parts.index.start,
            overflow: self.overflow.map_or(base + parts.overflow.start, DeviceSpan::address),
            fault: 0,
            order: Order { entries: self.header.entries(), row: self.header.row, reserved: 0 },
            device_bytes: self.header.target.device_bytes() as u32,
            sectors: self.header.sectors,
        }
    }

    /// Decompresses the entries from `first` on into `to`. In a matrix these are whole rows, and
    /// `first` belongs to a row whose index is a multiple of 16. An entry that fails to decode
    /// reads as zeros.
    ///
    /// # Errors
    /// [`Error::Range`], [`Error::Shape`], or a driver error.
    pub fn read(&self, on: &CudaStream, first: u64, to: DeviceSpan<'_>) -> Result<(), Error> {
        let count = to.check_entries()?.entries();
        let end = first.saturating_add(count);
        if end > self.entries() {
            return Err(Error::Range { first, end, entries: self.entries() });
        }
        let row = u64::from(self.header.row);
        let tile = row * TILE_ROWS;
        if row > 0 && (!first.is_multiple_of(tile) || !count.is_multiple_of(row)) {
            return Err(Error::Shape {
                bytes: to.bytes(),
                address: to.address(),
                need: "whole rows, from a multiple of 16 on",
            });
        }
        // Places of a matrix are in tiles; the last tile may have empty ones.
        let places = if row > 0 { count.next_multiple_of(tile) } else { count };
        if places == 0 {
            return Ok(());
        }
        let arguments = (self.reading(to), first, places, first);
        let launch = Launch::row(places.div_ceil(PAGE), THREADS);
        // SAFETY: the arguments of `frozen_read`; `to` has the entries of these places.
        let started = unsafe { launch.start(on, &self.kernels.read, &arguments) };
        self.gpu.check("start reading", started)
    }

    /// Computes the gradient of an activation's input from that of its output; both have the
    /// buffer's size.
    pub(crate) fn read_gradients(
        &self,
        on: &CudaStream,
        gradients: DeviceSpan<'_>,
        to: DeviceSpan<'_>,
    ) -> Result<(), Error> {
        let count = self.entries();
        if count == 0 {
            return Ok(());
        }
        let arguments = (self.reading(to), 0u64, count, 0u64, gradients.address());
        // SAFETY: the arguments of `frozen_back`; both spans have all entries.
        let started =
            unsafe { Launch::row(count.div_ceil(PAGE), THREADS).start(on, &self.kernels.back, &arguments) };
        self.gpu.check("start reading", started)
    }

    /// Gathers single entries: entry `list[i]`, a 32-bit index, to the i-th of `to`; zeros past the
    /// end.
    ///
    /// # Errors
    /// [`Error::Shape`] unless `list` has one index per entry of `to`, or a driver error.
    pub fn gather(&self, on: &CudaStream, list: DeviceSpan<'_>, to: DeviceSpan<'_>) -> Result<(), Error> {
        let count = to.check_entries()?.entries();
        let need = "one 32-bit number for each entry";
        let list = list.check(4, 4, need)?;
        if list.bytes() / 4 != count {
            return Err(Error::Shape { bytes: list.bytes(), address: list.address(), need });
        }
        if count == 0 {
            return Ok(());
        }
        let arguments = (self.reading(to), list.address(), count);
        let launch = Launch::row(count.div_ceil(PAGE), THREADS);
        // SAFETY: the arguments of `frozen_gather`; the list is as long as `to`, and the kernel
        // checks its indices.
        let started = unsafe { launch.start(on, &self.kernels.gather, &arguments) };
        self.gpu.check("start gathering", started)
    }

    fn reading(&self, to: DeviceSpan<'_>) -> Reading {
        Reading { from: self.view(), to: to.address(), params: Params::of(&self.header.codec) }
    }
}
