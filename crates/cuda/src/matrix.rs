//! A writable bf16 matrix at 4/3x over given memory, read in place by linear layers.

use std::sync::{Arc, PoisonError};

use buddy_codec::{Bf16, Codec, FrozenHeader};
use buddy_core::{ENTRY_BYTES, SECTOR_BYTES, Target};
use cudarc::driver::{CudaFunction, CudaStream};

use crate::{
    BufferBytes, BufferMemory, DeviceSpan, Error, ExternalBuffer, Gpu,
    driver::Launch,
    frozen::TILE_ROWS,
    layout::{BuddyView, MatrixRows, Order, PackedMatrixView},
    source::{Source, WARPS},
};

/// Places per warp.
const WARP_PLACES: u64 = 32;

/// The kernels of `external.cu`.
#[derive(Debug)]
pub(crate) struct ExternalKernels {
    pub(crate) train: CudaFunction,
    write: CudaFunction,
    read: CudaFunction,
}

/// A writable bf16 matrix at 4/3x. It is stored like a frozen one, in tiles of 16 rows, but with an
/// overflow slot for every entry: rewriting a row moves nothing, and nothing is ever lost. No
/// operation waits or allocates.
#[derive(Debug, Clone)]
pub struct WritableMatrix<'a> {
    gpu: Gpu,
    kernels: Arc<ExternalKernels>,
    /// A buffer of all places, those past the last row included.
    buffer: ExternalBuffer<'a>,
    /// The header of an equal frozen matrix.
    header: FrozenHeader,
}

impl<'a> WritableMatrix<'a> {
    /// Returns the memory of a matrix.
    ///
    /// # Errors
    /// [`Error::Weights`] unless columns are a multiple of 64.
    pub fn room(rows: u32, columns: u32) -> Result<BufferBytes, Error> {
        Ok(BufferBytes::of(Target::X4Over3, place_bytes(rows, row_entries(columns)?)))
    }

    /// Creates a matrix over this memory, whose content is arbitrary.
    ///
    /// # Errors
    /// As for [`room`](Self::room) and [`ExternalBuffer::new`].
    pub fn new(
        gpu: &Gpu,
        bf16: Bf16,
        (rows, columns): (u32, u32),
        given: BufferMemory<'a>,
    ) -> Result<Self, Error> {
        let (codec, row, target) = (Codec::Bf16(bf16), row_entries(columns)?, Target::X4Over3);
        let buffer = ExternalBuffer::new(gpu, &codec, target, place_bytes(rows, row), given)?;
        let bytes = u64::from(rows) * u64::from(row) * ENTRY_BYTES as u64;
        let header = FrozenHeader { codec, target, bytes, row, sectors: 0 };
        Ok(Self { gpu: gpu.clone(), kernels: gpu.external_kernels()?, buffer, header })
    }

    /// Fills the matrix with zeros, in stream order.
    ///
    /// # Errors
    /// A driver error.
    pub fn clear(&self, on: &CudaStream) -> Result<(), Error> {
        self.buffer.clear(on)
    }

    /// Compresses plain rows into those from `first` on.
    ///
    /// # Errors
    /// [`Error::Range`] past the last row, [`Error::Shape`] for partial rows, or a driver error.
    pub fn write(&self, on: &CudaStream, first: u32, from: DeviceSpan<'_>) -> Result<(), Error> {
        self.start(on, &self.kernels.write, first, from)
    }

    /// Decompresses rows from `first` on. An entry that fails to decode reads as zeros.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn read(&self, on: &CudaStream, first: u32, to: DeviceSpan<'_>) -> Result<(), Error> {
        self.start(on, &self.kernels.read, first, to)
    }

    fn start(
        &self,
        on: &CudaStream,
        kernel: &CudaFunction,
        first: u32,
        plain: DeviceSpan<'_>,
    ) -> Result<(), Error> {
        self.gpu.alive()?;
        let row = u64::from(self.header.row);
        let plain = plain.check(row * ENTRY_BYTES as u64, 16, "whole rows of the matrix, aligned to 16")?;
        let count = plain.entries() / row;
        let (begin, end) = (u64::from(first), u64::from(first) + count);
        if end > self.header.entries() / row {
            return Err(Error::Range { first: begin * row, end: end * row, entries: self.header.entries() });
        }
        if count == 0 {
            return Ok(());
        }
        // Warps take aligned runs of places.
        let tile = TILE_ROWS * row;
        let start = begin / TILE_ROWS * tile / WARP_PLACES * WARP_PLACES;
        let warps = (end.div_ceil(TILE_ROWS) * tile - start).div_ceil(WARP_PLACES);
        let order = Order { entries: self.header.entries(), row: self.header.row, reserved: 0 };
        let rows = MatrixRows { order, first, count: count as u32 };
        let arguments = (self.buffer.view(), rows, plain.address());
        let launch = Launch::row(warps.div_ceil(u64::from(WARPS)), WARPS * WARP_PLACES as u32);
        // SAFETY: the arguments of `rows_write` and `rows_read`; the rows are the matrix's, and
        // `plain` has the same number of rows.
        let launched = unsafe { launch.start(on, kernel, &arguments) };
        self.gpu.check("start on rows of a matrix", launched)
    }

    /// Returns the header of an equal frozen matrix.
    pub fn header(&self) -> &FrozenHeader {
        &self.header
    }

    pub(crate) fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Returns the matrix as linear layers take it, without an index.
    pub(crate) fn weights(&self) -> PackedMatrixView {
        let BuddyView { memory, params } = self.buffer.view();
        let sectors = u32::try_from(memory.entries).unwrap_or(u32::MAX);
        PackedMatrixView {
            device: memory.device,
            nibbles: memory.nibbles,
            overflow: memory.buddy,
            index: 0,
            sectors,
            window: params.window(),
        }
    }
}

impl Gpu {
    /// Returns the kernels of given memory, compiled or cached.
    ///
    /// # Errors
    /// An error of the compiler or the driver.
    pub(crate) fn external_kernels(&self) -> Result<Arc<ExternalKernels>, Error> {
        let mut kept = self.external().lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernels) = &*kept {
            return Ok(kernels.clone());
        }
        let module = self.module(&Source::external())?;
        let find = |name| self.check("find the kernels", module.load_function(name));
        let kernels = ExternalKernels {
            train: find("window_train")?,
            write: find("rows_write")?,
            read: find("rows_read")?,
        };
        Ok(kept.insert(Arc::new(kernels)).clone())
    }
}

/// Returns the entries of a row.
fn row_entries(columns: u32) -> Result<u32, Error> {
    let what = "their columns are no multiple of 64";
    if columns == 0 || !columns.is_multiple_of(64) { Err(Error::Weights { what }) } else { Ok(columns / 64) }
}

/// Returns the bytes of all places, in whole tiles.
fn place_bytes(rows: u32, row: u32) -> u64 {
    u64::from(rows).next_multiple_of(TILE_ROWS) * u64::from(row) * ENTRY_BYTES as u64
}

/// At 4/3x an entry overflows by at most one sector, so that its index is its slot's.
const _: () = assert!(Target::X4Over3.buddy_bytes() == SECTOR_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrix_sizes_are_whole_tiles() {
        assert_eq!(WritableMatrix::room(17, 128).unwrap(), BufferBytes::of(Target::X4Over3, 32 * 256));
        assert!(WritableMatrix::room(17, 100).unwrap_err().to_string().contains("64"));
    }
}
