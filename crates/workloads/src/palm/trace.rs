//! `palm` on a GPU: one time step of three Runge-Kutta stages, each a stencil per field and a
//! pressure solve.
//!
//! Instructions counted: 50 for the diffusivities (two roots, a division); 24 to advect a field, 20
//! to diffuse it, 50 for the stress on a wind, 105 for the production of subgrid energy. A
//! transform of length n takes 2 log2 n per element and a shared-memory exchange for every three of
//! its log2 n passes. Ghost filling is omitted.

use buddy_trace::{
    Application, Op, Step,
    pattern::{Affine, Array, Body, Nest},
};

use super::{E, NAMES, PT, Palm, W, grid::Grid};
use crate::layout::Layout;

pub(super) fn application(palm: &Palm) -> Application {
    let layout = Layout::of(palm);
    let state = |number: usize| NAMES.map(|name| layout.array(&format!("{name}_{number}")));
    let [tend, km, kh, p, d, tric] = layout.arrays(["tend", "km", "kh", "p", "d", "tric"]);
    let trace =
        Trace { grid: palm.grid, states: [state(1), state(2)], change: state(3), tend, km, kh, p, d, tric };
    let kernels = (0..3).flat_map(|stage| trace.stage((palm.current + stage) % 2));
    let steps = kernels.map(Step::of).collect();
    layout.application("palm", steps)
}

struct Trace {
    grid: Grid,
    states: [[Array; 5]; 2],
    change: [Array; 5],
    tend: Array,
    km: Array,
    kh: Array,
    p: Array,
    d: Array,
    tric: Array,
}

impl Trace {
    /// Returns one stage, from one state to the other.
    fn stage(&self, current: usize) -> Vec<Nest> {
        let (now, next) = (&self.states[current], &self.states[1 - current]);
        let mut kernels = vec![self.diffusivities(now)];
        for field in 0..5 {
            kernels.push(self.tendency(now, field));
            kernels.push(self.advance(now[field], self.change[field], next[field]));
        }
        kernels.push(self.divergence(next));
        kernels.extend([self.transform("along x", self.grid.nx), self.transform("along y", self.grid.ny)]);
        kernels.push(self.columns());
        kernels.extend([self.transform("along y", self.grid.ny), self.transform("along x", self.grid.nx)]);
        kernels.push(self.over_cells(
            "pressure",
            32,
            &Body::default().load(self.d, self.plain()).store(self.p, self.cell()),
        ));
        kernels.extend((0..3).map(|axis| self.correct(next[axis], axis)));
        kernels
    }

    /// Indexes a field's cells, with ghosts.
    fn cell(&self) -> Affine {
        let [x, y, z] = self.strides();
        Affine::along([x, y, z, 0]).plus(x + y + z)
    }

    /// Indexes an array without ghosts.
    fn plain(&self) -> Affine {
        let (nx, ny) = (self.grid.nx as i64, self.grid.ny as i64);
        Affine::along([1, nx, nx * ny, 0])
    }

    fn strides(&self) -> [i64; 3] {
        self.grid.strides().map(|stride| stride as i64)
    }

    fn over_cells(&self, name: &str, registers: u32, body: &Body) -> Nest {
        let Grid { nx, ny, nz } = self.grid;
        Nest::new(name, [nx, ny, nz, 1], registers).phase(1, body)
    }

    /// Returns the offsets of a cell and its six neighbours, in memory order.
    fn star(&self) -> [i64; 7] {
        let [x, y, z] = self.strides();
        [-z, -y, -x, 0, x, y, z]
    }

    fn diffusivities(&self, now: &[Array; 5]) -> Nest {
        let (cell, above) = (self.cell(), self.strides()[2]);
        let body = Body::default().load(now[E], cell).load_each(now[PT], cell, &[-above, above]);
        let body = body.work(Op::Fp64, 50, 2).store(self.km, cell).store(self.kh, cell);
        self.over_cells("diffusivities", 40, &body)
    }

    fn tendency(&self, now: &[Array; 5], field: usize) -> Nest {
        let body = match field {
            PT => self.mixed(self.carried(now, field), self.kh).work(Op::Fp64, 44, 3),
            E => self.produced(now).work(Op::Fp64, 150, 4),
            W => self.stressed(now, field).load_each(now[PT], self.cell(), &[-self.strides()[2], 0]).work(
                Op::Fp64,
                80,
                3,
            ),
            _ => self.stressed(now, field).work(Op::Fp64, 75, 3),
        };
        let name = ["tendency u", "tendency v", "tendency w", "tendency pt", "tendency e"][field];
        self.over_cells(name, 80, &body.store(self.tend, self.cell()))
    }

    /// Loads the field around a cell, and the winds on the cell's faces.
    fn carried(&self, now: &[Array; 5], field: usize) -> Body {
        let body = Body::default().load_each(now[field], self.cell(), &self.star());
        (0..3).fold(body, |body, axis| body.load_each(now[axis], self.cell(), &[0, self.strides()[axis]]))
    }

    fn mixed(&self, body: Body, k: Array) -> Body {
        body.load_each(k, self.cell(), &self.star())
    }

    /// Loads a wind around its cell, the other winds on the edges, and the diffusivity on all of
    /// them.
    fn stressed(&self, now: &[Array; 5], axis: usize) -> Body {
        let (strides, cell) = (self.strides(), self.cell());
        let (a, others) = (strides[axis], [(axis + 1) % 3, (axis + 2) % 3]);
        let mut body =
            Body::default().load_each(now[axis], cell, &self.star()).load_each(self.km, cell, &[-a, 0]);
        for other in others {
            let b = strides[other];
            body = body.load_each(now[other], cell, &[-a, 0, b - a, b]);
            body = body.load_each(self.km, cell, &[-a - b, -b, b - a, b]);
        }
        body
    }

    /// Advects, diffuses and produces subgrid energy.
    fn produced(&self, now: &[Array; 5]) -> Body {
        let (strides, cell) = (self.strides(), self.cell());
        let mut body = Body::default().load_each(now[E], cell, &self.star());
        for axis in 0..3 {
            let (a, b, c) = (strides[axis], strides[(axis + 1) % 3], strides[(axis + 2) % 3]);
            body = body.load_each(now[axis], cell, &[0, a, -b, b, a - b, a + b, -c, c, a - c, a + c]);
        }
        let above = strides[2];
        self.mixed(body, self.km).load(self.kh, cell).load_each(now[PT], cell, &[-above, above])
    }

    fn advance(&self, now: Array, change: Array, next: Array) -> Nest {
        let cell = self.cell();
        let body =
            [self.tend, change, now].iter().fold(Body::default(), |body, array| body.load(*array, cell));
        let body = body.work(Op::Fp64, 4, 2).store(change, cell).store(next, cell);
        self.over_cells("advance", 32, &body)
    }

    fn divergence(&self, winds: &[Array; 5]) -> Nest {
        let strides = self.strides();
        let body = (0..3).fold(Body::default(), |body, axis| {
            body.load_each(winds[axis], self.cell(), &[0, strides[axis]])
        });
        self.over_cells("divergence", 32, &body.work(Op::Fp64, 6, 2).store(self.d, self.plain()))
    }

    /// Transforms every row or column: read once, computed in shared memory, written once.
    fn transform(&self, name: &str, length: usize) -> Nest {
        let passes = length.ilog2();
        let mut body = Body::default().load(self.d, self.plain());
        for _ in 0..passes.div_ceil(3) {
            body = body.work(Op::Fp64, 2 * passes / passes.div_ceil(3), 2).exchange(8);
        }
        self.over_cells(name, 64, &body.work(Op::Fp64, 2, 2).store(self.d, self.plain()))
    }

    /// Solves a tridiagonal system per column: forward elimination, then back substitution.
    fn columns(&self) -> Nest {
        let Grid { nx, ny, nz } = self.grid;
        let level = (nx * ny) as i64;
        let up = Affine::along([1, nx as i64, 0, 0]).stepping(level);
        let down = up.plus((nz as i64 - 2) * level).stepping(-level);
        let pass = |place, work| {
            Body::default()
                .load(self.d, place)
                .load(self.tric, place)
                .work(Op::Fp64, work, 1)
                .store(self.d, place)
        };
        Nest::new("columns", [nx, ny, 1, 1], 32).phase(nz, &pass(up, 3)).phase(nz - 1, &pass(down, 1))
    }

    /// Subtracts the pressure gradient from a wind.
    fn correct(&self, wind: Array, axis: usize) -> Nest {
        let body = Body::default().load_each(self.p, self.cell(), &[-self.strides()[axis], 0]);
        let body = body.load(wind, self.cell()).work(Op::Fp64, 2, 1).store(wind, self.cell());
        self.over_cells(["correct u", "correct v", "correct w"][axis], 32, &body)
    }
}
