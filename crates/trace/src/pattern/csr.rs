//! Sparse matrix-vector product, one row per thread: the matrix streams, the vector is gathered.

use super::{Array, lanes_for};
use crate::{At, Code, Error, Inst, Kernel, Launch, NO_REGISTER, Op, WARP_LANES};

/// `y = A x` with the matrix in slices of 32 rows, so that it streams, and equally many entries per
/// row. `column` returns the vector element of an entry.
#[derive(Debug, Clone)]
pub struct Csr {
    launch: Launch,
    /// Values of the matrix.
    pub values: Array,
    /// Column numbers of the matrix.
    pub columns: Array,
    /// Input vector, gathered.
    pub x: Array,
    /// Output vector.
    pub y: Array,
    rows: u64,
    row_entries: u32,
    column: fn(row: u64, entry: u64, rows: u64) -> u64,
}

impl Csr {
    /// Creates the product; arrays are values, columns, x and y.
    pub fn new(arrays: [Array; 4], rows: u64, row_entries: u32, column: fn(u64, u64, u64) -> u64) -> Self {
        const THREADS: u64 = 256;
        let blocks = u32::try_from(rows.div_ceil(THREADS)).expect("at most 2^40 rows");
        let launch = Launch::linear("csr", blocks, THREADS as u32);
        let [values, columns, x, y] = arrays;
        Self { launch, values, columns, x, y, rows, row_entries, column }
    }

    fn fill_entry(&self, first: u64, mask: u32, entry: u64, code: &mut Code) {
        let lanes = u64::from(mask.count_ones());
        let place = first * u64::from(self.row_entries) + entry * u64::from(WARP_LANES);
        let load = |array: Array, dst| {
            let bytes = array.element_bytes;
            Inst::new(Op::LoadGlobal, dst, &[2])
                .at(array.address(place), i32::from(bytes), bytes)
                .masked(mask)
        };
        code.push(Inst::new(Op::Int, 2, &[2]));
        code.push(load(self.columns, 4));
        code.push(load(self.values, 6));
        let mut addresses = [0; 32];
        for lane in 0..lanes {
            addresses[lane as usize] = self.x.address((self.column)(first + lane, entry, self.rows));
        }
        let gather = Inst::new(Op::LoadGlobal, 8, &[4]).masked(mask);
        code.push_list(gather, self.x.element_bytes, &addresses[..lanes as usize]);
        code.push(Inst::new(Op::Fp64, 10, &[6, 8, 10]).masked(mask));
    }
}

impl Kernel for Csr {
    fn launch(&self) -> &Launch {
        &self.launch
    }

    fn fill(&mut self, at: At, code: &mut Code) -> Result<(), Error> {
        let warp = at.block * u64::from(self.launch.warps()) + u64::from(at.warp);
        let first = warp * u64::from(WARP_LANES);
        if first >= self.rows || at.step > self.row_entries {
            return Ok(());
        }
        let mask = lanes_for(self.rows - first);
        if at.step < self.row_entries {
            self.fill_entry(first, mask, u64::from(at.step), code);
        } else {
            let bytes = self.y.element_bytes;
            let store = Inst::new(Op::StoreGlobal, NO_REGISTER, &[2, 10]).masked(mask);
            code.push(store.at(self.y.address(first), i32::from(bytes), bytes));
        }
        Ok(())
    }
}
