//! Generated kernels: small descriptions that produce each warp's instructions on demand.
//!
//! Each takes its [arrays](Array) as parameters. The same pattern serves synthetic tests, a
//! workload's snapshot and a network's layers.

mod arithmetic;
mod body;
mod csr;
mod gemm;
mod lattice;
mod nest;
mod operand;
mod pool;
mod program;
mod random;
mod rows;
mod sampled;
mod stencil;
mod stream;
mod tiled;

pub use arithmetic::Arithmetic;
pub use body::{Affine, Body, Index, List};
pub use csr::Csr;
pub use gemm::Gemm;
pub use lattice::Lattice;
pub use nest::Nest;
pub use operand::{Images, Operand, Stride};
pub use pool::{Pool, Window};
pub use program::{PROGRAMS, Program, program};
pub use random::RandomSectors;
pub use rows::Rows;
pub use sampled::Sampled;
pub use stencil::Stencil;
pub use stream::Stream;
pub use tiled::Tiled;

use crate::WARP_LANES;

/// An array in global memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Array {
    /// Address of the first element.
    pub base: u64,
    /// Bytes of an element: 1, 2, 4, 8 or 16.
    pub element_bytes: u8,
}

impl Array {
    /// Returns the address of an element.
    #[inline]
    pub fn address(self, index: u64) -> u64 {
        self.base + index * u64::from(self.element_bytes)
    }
}

/// Returns the mask of lanes with work when `left` items are left for a warp.
#[inline]
pub(crate) fn lanes_for(left: u64) -> u32 {
    if left >= u64::from(WARP_LANES) { u32::MAX } else { (1 << left) - 1 }
}

/// Hashes a number (splitmix64); stands in for unordered data.
#[inline]
pub fn scramble(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
