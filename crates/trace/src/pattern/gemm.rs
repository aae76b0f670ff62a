//! A tiled matrix product through shared memory; a convolution is one over unrolled patches.

use super::Array;
use crate::{At, Code, Error, Inst, Kernel, Launch, NO_REGISTER, Op};

/// `C = A B` for row-major `A` (m by k), `B` (k by n) and `C` (m by n) of four-byte elements.
///
/// A block of 256 threads computes a tile of 64 by 64 and steps along k by 16. It loads a tile of
/// each input to shared memory, waits, and multiplies, 4 by 4 outputs per thread.
#[derive(Debug, Clone)]
pub struct Gemm {
    launch: Launch,
    a: Array,
    b: Array,
    c: Array,
    size: [u64; 3],
}

/// Rows and columns of a block's tile.
pub(super) const TILE: u64 = 64;
/// k-block: elements of k per step.
pub(super) const DEPTH: u64 = 16;

impl Gemm {
    /// Creates the product; `size` is m, n and k, rounded up to whole tiles.
    pub fn new(a: Array, b: Array, c: Array, size: [u64; 3]) -> Self {
        let launch = tiles("gemm", size[0], size[1]);
        Self { launch, a, b, c, size }
    }

    /// Loads the tiles of one step, 4 of 1024 elements per thread, and stores them to shared
    /// memory.
    fn fill_tiles(&self, at: At, row: u64, column: u64, code: &mut Code) {
        let ([_, n, k], warp, depth) = (self.size, u64::from(at.warp), u64::from(at.step) * DEPTH);
        code.push(Inst::new(Op::Int, 2, &[2]));
        // A warp loads 8 rows of A, 16 bytes from each of 4 lanes, and 2 rows of B, from each of 16
        // lanes.
        let mut addresses = [0; 32];
        for (lane, address) in (0u64..).zip(&mut addresses) {
            *address = self.a.address((row + warp * 8 + lane / 4) * k + depth + lane % 4 * 4);
        }
        code.push_list(Inst::new(Op::LoadGlobal, 16, &[2]), 16, &addresses);
        for (lane, address) in (0u64..).zip(&mut addresses) {
            *address = self.b.address((depth + warp * 2 + lane / 16) * n + column + lane % 16 * 4);
        }
        code.push_list(Inst::new(Op::LoadGlobal, 20, &[2]), 16, &addresses);
        code.push(Inst::new(Op::Barrier, NO_REGISTER, &[]));
        code.push(Inst::new(Op::StoreShared, NO_REGISTER, &[3, 16]).at(warp * 512, 16, 16));
        code.push(Inst::new(Op::StoreShared, NO_REGISTER, &[3, 20]).at(4096 + warp * 512, 16, 16));
        code.push(Inst::new(Op::Barrier, NO_REGISTER, &[]));
    }

    fn fill_result(&self, at: At, row: u64, column: u64, code: &mut Code) {
        let (n, warp) = (self.size[1], u64::from(at.warp));
        for part in 0..4u64 {
            let mut addresses = [0; 32];
            for (lane, address) in (0u64..).zip(&mut addresses) {
                let line = row + warp * 8 + lane / 16 * 4 + part;
                *address = self.c.address(line * n + column + lane % 16 * 4);
            }
            let store = Inst::new(Op::StoreGlobal, NO_REGISTER, &[2, 32 + 4 * part as u8]);
            code.push_list(store, 16, &addresses);
        }
    }
}

/// Multiplies two tiles in shared memory, 4 by 4 outputs per thread.
pub(super) fn fill_product(code: &mut Code) {
    for step in 0..DEPTH {
        // All lanes of a row read the same four elements of A; consecutive lanes read consecutive
        // elements of B.
        code.push(Inst::new(Op::LoadShared, 24, &[3]).at(step * 256, 0, 16));
        code.push(Inst::new(Op::LoadShared, 28, &[3]).at(4096 + step * 256, 16, 16));
        for (row, column) in (0..4).flat_map(|row| (0..4).map(move |column| (row, column))) {
            let sum = 32 + row * 4 + column;
            code.push(Inst::new(Op::Fp32, sum, &[24 + row, 28 + column, sum]));
        }
    }
}

/// Returns the launch of a product of `rows` by `columns`, in tiles.
pub(super) fn tiles(name: &str, rows: u64, columns: u64) -> Launch {
    let tiles = |n: u64| u32::try_from(n.div_ceil(TILE)).expect("at most 2^38 rows or columns");
    Launch {
        grid: [tiles(columns), tiles(rows), 1],
        shared_bytes: (2 * TILE * DEPTH * 4) as u32,
        registers: 64,
        ..Launch::linear(name, 1, 256)
    }
}

impl Kernel for Gemm {
    fn launch(&self) -> &Launch {
        &self.launch
    }

    fn fill(&mut self, at: At, code: &mut Code) -> Result<(), Error> {
        let columns = u64::from(self.launch.grid[0]);
        let (row, column) = (at.block / columns * TILE, at.block % columns * TILE);
        let steps = self.size[2].div_ceil(DEPTH);
        if u64::from(at.step) < steps {
            self.fill_tiles(at, row, column, code);
            fill_product(code);
        } else if u64::from(at.step) == steps {
            self.fill_result(at, row, column, code);
        }
        Ok(())
    }
}
