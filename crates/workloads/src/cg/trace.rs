//! `cg` on a GPU: one solve of 25 conjugate-gradient steps.
//!
//! As in the accelerator version, a warp multiplies one row: its lanes load consecutive elements
//! and columns, gather from the vector, and reduce their sums. The columns are the matrix's own.

use buddy_trace::{
    Application, At, Code, Error, Inst, Kernel, Launch, NO_REGISTER, Op, Step, WARP_LANES,
    pattern::{Affine, Array, Body, List, Nest},
};

use super::{Cg, INNER};
use crate::layout::Layout;

/// Warps per block.
const WARPS: u32 = 4;

pub(super) fn application(cg: &Cg) -> Application {
    let layout = Layout::of(cg);
    let [x, z, p, q, r] = layout.arrays(["x", "z", "p", "q", "r"]);
    let rows = cg.shape.rows;
    let product = Product::new(cg, &layout, p, q);
    let mut steps = vec![vector("start", rows, &[x], &[z, r, p], 0)];
    for _ in 0..INNER {
        steps.push(Step::of(product.clone()));
        steps.push(dot(rows, &[p, q]));
        steps.push(vector("z and r", rows, &[z, p, r, q], &[z, r], 2));
        steps.push(dot(rows, &[r]));
        steps.push(vector("p", rows, &[r, p], &[p], 1));
    }
    steps.push(Step::of(Product::new(cg, &layout, z, r)));
    steps.push(dot(rows, &[x, r]));
    layout.application("cg", steps)
}

/// Returns an element-wise kernel over vectors.
fn vector(name: &str, rows: usize, from: &[Array], to: &[Array], work: u32) -> Step {
    let body = from.iter().fold(Body::default(), |body, array| body.load(*array, Affine::LINE));
    let body = body.work(Op::Fp64, work, work.max(1) as u8);
    let body = to.iter().fold(body, |body, array| body.store(*array, Affine::LINE));
    Step::of(Nest::new(name, [rows, 1, 1, 1], 32).phase(1, &body))
}

/// Returns a dot-product kernel: five shuffles within a warp, two exchanges between warps.
fn dot(rows: usize, of: &[Array]) -> Step {
    let body = of.iter().fold(Body::default(), |body, array| body.load(*array, Affine::LINE));
    let body =
        (0..5).fold(body.work(Op::Fp64, 1, 1), |body, _| body.work(Op::Int, 2, 2).work(Op::Fp64, 1, 1));
    let body = body.exchange(8).work(Op::Fp64, 2, 1);
    Step::of(Nest::new("dot", [rows, 1, 1, 1], 32).phase(1, &body))
}

/// Sparse matrix-vector product, one row per warp.
#[derive(Debug, Clone)]
struct Product {
    launch: Launch,
    values: Array,
    columns: Array,
    starts: Array,
    from: Array,
    to: Array,
    colidx: List,
    rowstr: List,
}

impl Product {
    fn new(cg: &Cg, layout: &Layout, from: Array, to: Array) -> Self {
        let [values, columns, starts] = layout.arrays(["a", "colidx", "rowstr"]);
        let blocks =
            u32::try_from(cg.shape.rows.div_ceil(WARPS as usize)).expect("rows are numbered in 31 bits");
        let launch = Launch { registers: 32, ..Launch::linear("product", blocks, WARPS * WARP_LANES) };
        let (colidx, rowstr) = (cg.matrix.colidx.clone(), cg.matrix.rowstr.clone());
        Self { launch, values, columns, starts, from, to, colidx, rowstr }
    }

    /// Loads the row offsets.
    fn open_row(&self, row: usize, code: &mut Code) {
        code.push(Inst::new(Op::Int, 2, &[1]));
        for (register, end) in [(4, row), (6, row + 1)] {
            code.push(Inst::new(Op::LoadGlobal, register, &[2]).at(self.starts.address(end as u64), 0, 4));
        }
        code.push(Inst::new(Op::Int, 3, &[4]));
    }

    /// Multiplies 32 elements of the row: two addresses and loads, the vector's address and gather,
    /// a multiply-add, loop control.
    fn multiply(&self, first: usize, lanes: u32, code: &mut Code) {
        let mask = if lanes == WARP_LANES { u32::MAX } else { (1 << lanes) - 1 };
        let load = |array: Array, register, address| {
            let bytes = array.element_bytes;
            let inst = Inst::new(Op::LoadGlobal, register, &[address]).masked(mask);
            inst.at(array.address(first as u64), i32::from(bytes), bytes)
        };
        code.push(Inst::new(Op::Int, 8, &[3]));
        code.push(load(self.columns, 10, 8));
        code.push(Inst::new(Op::Int, 9, &[3]));
        code.push(load(self.values, 12, 9));
        code.push(Inst::new(Op::Int, 14, &[10]));
        let mut addresses = [0; WARP_LANES as usize];
        for (address, &column) in addresses.iter_mut().zip(&self.colidx[first..first + lanes as usize]) {
            *address = self.from.address(column as u64);
        }
        let gather = Inst::new(Op::LoadGlobal, 16, &[14]).masked(mask);
        code.push_list(gather, self.from.element_bytes, &addresses[..lanes as usize]);
        code.push(Inst::new(Op::Fp64, 18, &[12, 16, 18]).masked(mask));
        code.push(Inst::new(Op::Int, 3, &[3]));
        code.push(Inst::new(Op::Int, NO_REGISTER, &[3, 6]));
        code.push(Inst::new(Op::Control, NO_REGISTER, &[]));
    }

    /// Reduces the lanes' sums in five shuffles and stores the row's result.
    fn close_row(&self, row: usize, code: &mut Code) {
        for _ in 0..5 {
            code.push(Inst::new(Op::Int, 20, &[18]));
            code.push(Inst::new(Op::Int, 21, &[18]));
            code.push(Inst::new(Op::Fp64, 18, &[18, 20, 21]));
        }
        code.push(Inst::new(Op::Int, 2, &[1]));
        let store = Inst::new(Op::StoreGlobal, NO_REGISTER, &[2, 18]).masked(1);
        code.push(store.at(self.to.address(row as u64), 8, 8));
    }
}

impl Kernel for Product {
    fn launch(&self) -> &Launch {
        &self.launch
    }

    fn fill(&mut self, at: At, code: &mut Code) -> Result<(), Error> {
        let row = (at.block * u64::from(WARPS) + u64::from(at.warp)) as usize;
        let Some([start, end]) = self.rowstr.get(row..row + 2) else { return Ok(()) };
        let (first, end) = (*start as usize + (at.step * WARP_LANES) as usize, *end as usize);
        if at.step == 0 {
            self.open_row(row, code);
        } else if first >= end {
            return Ok(());
        }
        let lanes = (end - first).min(WARP_LANES as usize);
        self.multiply(first, lanes as u32, code);
        if first + lanes == end {
            self.close_row(row, code);
        }
        Ok(())
    }
}
