//! GPU kernels shared by `sp`, `csp` and `bt`: the right-hand side and its addition to the state.

use buddy_trace::{
    Op,
    pattern::{Affine, Array, Body, Nest},
};

use super::{Order, Sweep};
use crate::layout::Layout;

/// The cells of a grid and their memory layout.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cells {
    pub(crate) n: usize,
    pub(crate) order: Order,
}

impl Cells {
    /// Returns the strides in cells along i, j and k.
    fn strides(self) -> [i64; 3] {
        let n = self.n as i64;
        [1, n, n * n]
    }

    /// Returns the index and size of a grid of threads along i, j and k, `margin` cells from each
    /// face.
    pub(crate) fn grid(self, margin: [usize; 3]) -> (Affine, [usize; 4]) {
        let [i, j, k] = self.strides();
        let first: i64 = margin.iter().zip([i, j, k]).map(|(margin, stride)| *margin as i64 * stride).sum();
        let [x, y, z] = margin.map(|margin| self.n - 2 * margin);
        (Affine::along([i, j, k, 0]).plus(first), [x, y, z, 1])
    }

    /// Indexes the cell of one thread per line of a sweep, stepping along it from position `first`.
    pub(crate) fn line(self, sweep: Sweep, first: usize) -> Affine {
        let at = |plane, position, line| sweep.cell(self.n, plane, position, line) as i64;
        let along = [at(0, 0, 1), at(1, 0, 0), 0, 0];
        Affine { first: at(1, first, 1), along, step: at(0, 1, 0) }
    }

    /// Indexes a work array, laid out as plane, position, line.
    pub(crate) fn work_line(self, first: usize) -> Affine {
        self.line(Sweep::Y, first)
    }

    /// Indexes component `m` of the `size` components that a field has per cell.
    pub(crate) fn number(self, cell: Affine, size: usize, m: usize) -> Affine {
        let (size, m) = (size as i64, m as i64);
        match self.order {
            Order::C => Affine {
                first: cell.first * size + m,
                along: cell.along.map(|cells| cells * size),
                step: cell.step * size,
            },
            Order::Fortran => cell.plus(m * (self.n as i64).pow(3)),
        }
    }

    /// Loads some components of a field.
    pub(crate) fn load(self, body: Body, field: Array, cell: Affine, size: usize, numbers: &[usize]) -> Body {
        numbers.iter().fold(body, |body, &m| body.load(field, self.number(cell, size, m)))
    }

    /// Stores some components of a field.
    pub(crate) fn store(
        self,
        body: Body,
        field: Array,
        cell: Affine,
        size: usize,
        numbers: &[usize],
    ) -> Body {
        numbers.iter().fold(body, |body, &m| body.store(field, self.number(cell, size, m)))
    }
}

/// All five components of a state.
pub(crate) const STATE: [usize; 5] = [0, 1, 2, 3, 4];

/// Returns the kernels of a time step's right-hand side: derived quantities, forcing, then fluxes
/// along each axis.
///
/// Instructions counted: a division (10) and 9 for derived quantities, for `sp` also a root; along
/// an axis 22 for transport and pressure, 33 for viscosity, 40 for smoothing.
pub(crate) fn change(cells: Cells, layout: &Layout, speed: Option<Array>) -> Vec<Nest> {
    let [u, rhs, forcing] = layout.arrays(["u", "rhs", "forcing"]);
    let derived = layout.arrays(["us", "vs", "ws", "qs", "rho_i", "square"]);
    let (all, whole) = cells.grid([0; 3]);
    let body = cells.load(Body::default(), u, all, 5, &STATE);
    let body = body.work(Op::Fp64, if speed.is_some() { 33 } else { 19 }, 3);
    let body = derived.iter().chain(&speed).fold(body, |body, array| body.store(*array, all));
    let mut kernels = vec![Nest::new("derive", whole, 40).phase(1, &body)];
    let (inner, size) = cells.grid([1; 3]);
    let body = cells.load(Body::default(), forcing, inner, 5, &STATE).work(Op::Fp64, 5, 5);
    kernels.push(Nest::new("forcing", size, 32).phase(1, &cells.store(body, rhs, inner, 5, &STATE)));
    kernels.extend((0..3).map(|axis| along(cells, axis, u, rhs, &derived)));
    kernels
}

/// Transport, pressure, viscosity and smoothing along one axis. Cells next to a face, whose
/// smoothing is one-sided, are omitted.
fn along(cells: Cells, axis: usize, u: Array, rhs: Array, derived: &[Array]) -> Nest {
    let mut margin = [1; 3];
    margin[axis] = 2;
    let (here, size) = cells.grid(margin);
    let stride = cells.strides()[axis];
    let body = [-2, -1, 0, 1, 2]
        .iter()
        .fold(Body::default(), |body, step| cells.load(body, u, here.plus(step * stride), 5, &STATE));
    let body = derived.iter().fold(body, |body, array| body.load_each(*array, here, &[-stride, 0, stride]));
    let body = cells.load(body, rhs, here, 5, &STATE).work(Op::Fp64, 95, 5);
    let body = cells.store(body, rhs, here, 5, &STATE);
    Nest::new(["flux x", "flux y", "flux z"][axis], size, 96).phase(1, &body)
}

/// Returns a kernel that updates `rhs` in place from itself and some scalars.
pub(crate) fn rotate(cells: Cells, name: &str, rhs: Array, scalars: &[Array], work: u32) -> Nest {
    let (inner, size) = cells.grid([1; 3]);
    let body = cells.load(Body::default(), rhs, inner, 5, &STATE);
    let body = scalars.iter().fold(body, |body, array| body.load(*array, inner));
    let body = cells.store(body.work(Op::Fp64, work, 5), rhs, inner, 5, &STATE);
    Nest::new(name, size, 40).phase(1, &body)
}

/// Returns the kernel that adds the change to the state.
pub(crate) fn add(cells: Cells, layout: &Layout) -> Nest {
    let [u, rhs] = layout.arrays(["u", "rhs"]);
    let (inner, size) = cells.grid([1; 3]);
    let body = cells.load(Body::default(), u, inner, 5, &STATE);
    let body = cells.load(body, rhs, inner, 5, &STATE).work(Op::Fp64, 5, 5);
    Nest::new("add", size, 32).phase(1, &cells.store(body, u, inner, 5, &STATE))
}
