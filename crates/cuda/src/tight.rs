//! Tight matrices on the GPU (`docs/reference/format.md`): packed on a CPU, read in place by linear
//! layers, by rows and by entries.

use std::sync::{Arc, PoisonError};

use buddy_codec::{Bf16, Codec, FROZEN_HEADER_BYTES, FrozenHeader, TightHeader};
use buddy_core::{ENTRY_BYTES, Target};
use cudarc::driver::{CudaFunction, CudaStream};

use crate::{
    DeviceSpan, Error, Gpu,
    driver::Launch,
    frozen::TILE_ROWS,
    layout::{PackedMatrixView, TightReading, TightView},
    source::Source,
};

/// Threads of a block: `READERS` of `tight.cu`. A warp reads a column, four threads an entry.
const READERS: u32 = 128;
const COLUMNS: u64 = READERS as u64 / 32;
const ENTRIES: u64 = READERS as u64 / 4;

/// The kernels of `tight.cu`.
#[derive(Debug)]
pub(crate) struct TightKernels {
    read: CudaFunction,
    gather: CudaFunction,
}

/// A tight matrix in device memory: [`buddy_codec::tighten`] of a bf16 matrix, copied there. Every
/// operation is enqueued on the caller's stream; none waits or allocates. Damaged bytes give any
/// values, never an access outside of the matrix.
#[derive(Debug, Clone)]
pub struct TightMatrix<'a> {
    gpu: Gpu,
    kernels: Arc<TightKernels>,
    header: TightHeader,
    /// The header of an equal frozen matrix.
    frozen: FrozenHeader,
    memory: DeviceSpan<'a>,
}

impl<'a> TightMatrix<'a> {
    /// Returns the matrix that lies in this memory, with the header that it begins with.
    ///
    /// # Errors
    /// [`Error::Shape`] if the memory is too small or not aligned to 128 bytes, or an error of the
    /// compiler or the driver.
    pub fn new(gpu: &Gpu, header: TightHeader, memory: DeviceSpan<'a>) -> Result<Self, Error> {
        let memory = memory.check(1, FROZEN_HEADER_BYTES as u64, "memory that is aligned to 128 bytes")?;
        if memory.bytes() < header.parts().total {
            let need = "as many bytes as the header says";
            return Err(Error::Shape { bytes: memory.bytes(), address: memory.address(), need });
        }
        let frozen = FrozenHeader {
            codec: Codec::Bf16(Bf16::default()),
            target: Target::X4Over3,
            bytes: header.bytes,
            row: header.row,
            sectors: 0,
        };
        Ok(Self { gpu: gpu.clone(), kernels: gpu.tight_kernels()?, header, frozen, memory })
    }

    /// Returns the header.
    pub fn header(&self) -> &TightHeader {
        &self.header
    }

    /// Returns the header of an equal frozen matrix, which tells linear layers the shape.
    pub fn frozen_header(&self) -> &FrozenHeader {
        &self.frozen
    }

    pub(crate) fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Decompresses rows from `first` on, a multiple of 16, as many as `to` holds.
    ///
    /// # Errors
    /// [`Error::Range`] past the last row, [`Error::Shape`] for partial rows or another first row,
    /// or a driver error.
    pub fn read(&self, on: &CudaStream, first: u32, to: DeviceSpan<'_>) -> Result<(), Error> {
        self.gpu.alive()?;
        let row = u64::from(self.header.row);
        let need = "whole rows of the matrix from a multiple of 16 on, aligned to 16";
        let to = to.check(row * ENTRY_BYTES as u64, 16, need)?;
        if !u64::from(first).is_multiple_of(TILE_ROWS) {
            return Err(Error::Shape { bytes: to.bytes(), address: to.address(), need });
        }
        let (begin, count) = (u64::from(first), to.entries() / row);
        if begin + count > self.header.rows() {
            let (first, end) = (begin * row, (begin + count) * row);
            return Err(Error::Range { first, end, entries: self.header.entries() });
        }
        if count == 0 {
            return Ok(());
        }
        let columns = count.div_ceil(TILE_ROWS) * row;
        let reading = TightReading { first, count: count as u32, ..self.reading(to) };
        // SAFETY: the arguments of `tight_read`; `to` holds the rows, which are the matrix's.
        let started = unsafe {
            Launch::row(columns.div_ceil(COLUMNS), READERS).start(on, &self.kernels.read, &(reading,))
        };
        self.gpu.check("start reading", started)
    }

    /// Decompresses single entries: entry `i` of `to` is the one whose number is the 32-bit value
    /// `i` of `list`; zeros past the end.
    ///
    /// # Errors
    /// [`Error::Shape`] unless there is a number for each entry, or a driver error.
    pub fn gather(&self, on: &CudaStream, list: DeviceSpan<'_>, to: DeviceSpan<'_>) -> Result<(), Error> {
        self.gpu.alive()?;
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
        let launch = Launch::row(count.div_ceil(ENTRIES), READERS);
        // SAFETY: the arguments of `tight_gather`; the list is as long as `to`, and the kernel
        // checks its numbers.
        let started = unsafe { launch.start(on, &self.kernels.gather, &arguments) };
        self.gpu.check("start gathering", started)
    }

    fn reading(&self, to: DeviceSpan<'_>) -> TightReading {
        let rows = self.header.rows() as u32;
        TightReading { from: self.view(), to: to.address(), rows, first: 0, count: 0, reserved: 0 }
    }

    fn view(&self) -> TightView {
        let (base, parts) = (self.memory.address(), self.header.parts());
        TightView {
            columns: base + parts.columns.start,
            flags: base + parts.flags.start,
            words: base + parts.words.start,
            index: base + parts.index.start,
            rows: base + parts.rows.start,
            count: self.header.words,
            per_row: self.header.row,
        }
    }

    /// Returns the matrix as linear layers take it.
    pub(crate) fn weights(&self) -> PackedMatrixView {
        // Kernels find the row bytes behind the index.
        let TightView { columns, flags, words, index, count, .. } = self.view();
        PackedMatrixView {
            device: columns,
            nibbles: flags,
            overflow: words,
            index,
            sectors: count,
            window: 0,
        }
    }
}

impl Gpu {
    /// Returns the kernels of tight matrices, compiled or cached.
    ///
    /// # Errors
    /// An error of the compiler or the driver.
    fn tight_kernels(&self) -> Result<Arc<TightKernels>, Error> {
        let mut kept = self.tight().lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernels) = &*kept {
            return Ok(kernels.clone());
        }
        let module = self.module(&Source::tight())?;
        let find = |name| self.check("find the kernels", module.load_function(name));
        let kernels = TightKernels { read: find("tight_read")?, gather: find("tight_gather")? };
        Ok(kept.insert(Arc::new(kernels)).clone())
    }
}
