//! Rows of a matrix unpacked to scratch memory, for cuBLASLt.

use std::ops::Range;

use cudarc::driver::CudaStream;

use super::{Linear, kernel};
use crate::{
    DeviceSpan, Error, Source,
    driver::Launch,
    layout::Unpacking,
    linear::plan::{COLUMN, ENTRY},
};

/// Warps of a CTA, columns of a copy, and stages of a warp's ring, as in `unpack.cu`.
const WARPS: u32 = 8;
const RUN: u32 = 4;
const AHEAD: u32 = 2;
/// Shared memory of a CTA.
const SHARED: u32 = WARPS * (AHEAD * RUN * COLUMN + 16 * ENTRY + 128);
/// CTAs per SM.
const BLOCKS: u32 = 2;

/// Returns the program.
pub(super) fn source() -> Source {
    Source::unpack(&[format!("BUDDY_UNPACK_SHARED={SHARED}")])
}

impl Linear<'_> {
    /// Enqueues the unpacking of rows; the first is a multiple of 16.
    pub(super) fn make_plain(
        &self,
        on: &CudaStream,
        rows: Range<u32>,
        to: DeviceSpan<'_>,
    ) -> Result<(), Error> {
        let (gpu, row) = (self.weights.gpu(), self.weights.header().row);
        if !gpu.is_hopper() || self.weights.are_tight() {
            return self.weights.read(on, rows.start, to);
        }
        let kernel = kernel(gpu, |kernels| &mut kernels.unpack, (), "linear_unpack", source)?;
        let count = rows.end - rows.start;
        let (first_tile, tiles) = (rows.start / 16, count.div_ceil(16));
        let weights = self.weights.view();
        let view = Unpacking { weights, to: to.address(), per_row: row, first_tile, tiles, rows: count };
        let runs = u64::from(tiles) * u64::from(row.div_ceil(RUN));
        let blocks = u64::from(BLOCKS * gpu.multiprocessors()).min(runs.div_ceil(u64::from(WARPS)));
        let launch = Launch { shared: SHARED, ..Launch::row(blocks, 32 * WARPS) };
        // SAFETY: the arguments of `linear_unpack`; the caller's span has room for these rows.
        gpu.check("make weights plain", unsafe { launch.start(on, &kernel, &(view,)) })
    }
}
