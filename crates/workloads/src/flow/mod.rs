//! The flow problem that `sp`, `csp` and `bt` share: the NAS form of the compressible Navier-Stokes
//! equations on a cube, driven to a known steady state by a forcing term.
//!
//! Each time step computes the right-hand side `rhs`, smooths it by one implicit sweep in each
//! direction, and adds it to the state `u`.

mod field;
mod gas;
mod norms;
mod operator;
mod sweep;
mod trace;

use rayon::prelude::*;

use crate::workload::Allocation;
pub(crate) use field::{Field, Order, Plane, Planes};
pub(crate) use gas::{C1, C1C5, C2, C3C4, C1345, CON43, DSSP, Gas, SMOOTHING, State};
pub(crate) use norms::{Norms, Problem, Reference};
use operator::Operator;
pub(crate) use sweep::Sweep;
pub(crate) use trace::{Cells, STATE, add, change, rotate};

/// State of a run, and arrays that both solvers read.
pub(crate) struct Flow {
    pub(crate) n: usize,
    pub(crate) dt: f64,
    pub(crate) u: Field,
    pub(crate) rhs: Field,
    pub(crate) forcing: Field,
    pub(crate) velocity: [Vec<f64>; 3],
    pub(crate) qs: Vec<f64>,
    pub(crate) rho_i: Vec<f64>,
    pub(crate) square: Vec<f64>,
}

impl Flow {
    /// Doubles per cell in the arrays above.
    pub(crate) const DOUBLES: usize = 21;

    /// Creates the initial state, with the forcing that makes the exact state steady.
    pub(crate) fn new(n: usize, dt: f64, order: Order) -> Self {
        let five = || Field::zeros(n, 5, order);
        let one = || vec![0.0; n * n * n];
        let (velocity, qs, rho_i, square) = ([one(), one(), one()], one(), one(), one());
        let mut flow = Self { n, dt, u: five(), rhs: five(), forcing: five(), velocity, qs, rho_i, square };
        flow.set_state(gas::exact);
        flow.set_forcing();
        flow.set_state(gas::initial);
        flow
    }

    /// Returns the position of a cell in the unit cube.
    fn point(&self, [i, j, k]: [usize; 3]) -> [f64; 3] {
        [i, j, k].map(|at| at as f64 / (self.n - 1) as f64)
    }

    fn set_state(&mut self, state: impl Fn([f64; 3]) -> State + Sync) {
        let mut u = std::mem::replace(&mut self.u, Field::empty());
        u.planes_mut(Planes::K).into_par_iter().enumerate().for_each(|(k, mut plane)| {
            for (j, i) in pairs(0..self.n) {
                plane.put(j, i, 0, &state(self.point([i, j, k])));
            }
        });
        self.u = u;
    }

    /// Sets the forcing to the negative right-hand side of the current state.
    fn set_forcing(&mut self) {
        let Self { n, u, forcing, .. } = self;
        let (operator, gas) = (Operator::new(*n), |cell| Gas::of(u.get(cell)));
        interior(forcing, |cell, _| operator.apply(cell, &gas).map(|change| -change));
    }

    /// Derives velocity and energies from the state, and computes the change of one time step.
    pub(crate) fn compute_rhs(&mut self) {
        self.derive();
        let operator = Operator::new(self.n);
        let mut rhs = self.take_rhs();
        interior(&mut rhs, |cell, _| {
            let (change, forcing) =
                (operator.apply(cell, &|cell| self.gas(cell)), self.forcing.get::<5>(cell));
            std::array::from_fn(|m| self.dt * (change[m] + forcing[m]))
        });
        self.rhs = rhs;
    }

    /// Moves `rhs` out, so that it can be written while the other arrays are read.
    pub(crate) fn take_rhs(&mut self) -> Field {
        std::mem::replace(&mut self.rhs, Field::empty())
    }

    /// Returns state and derived quantities of a cell.
    #[inline]
    pub(crate) fn gas(&self, cell: usize) -> Gas {
        let [us, vs, ws] = &self.velocity;
        Gas {
            u: self.u.get(cell),
            velocity: [us[cell], vs[cell], ws[cell]],
            rho_i: self.rho_i[cell],
            square: self.square[cell],
            qs: self.qs[cell],
        }
    }

    fn derive(&mut self) {
        let Self { n, u, velocity: [us, vs, ws], qs, rho_i, square, .. } = self;
        let plane = *n * *n;
        let arrays = [us, vs, ws, qs, rho_i, square].map(|array| array.par_chunks_mut(plane));
        let [us, vs, ws, qs, rho_i, square] = arrays;
        (us, vs, ws, qs, rho_i, square).into_par_iter().enumerate().for_each(|(k, planes)| {
            for at in 0..plane {
                let gas = Gas::of(u.get(k * plane + at));
                [planes.0[at], planes.1[at], planes.2[at]] = gas.velocity;
                [planes.3[at], planes.4[at], planes.5[at]] = [gas.qs, gas.rho_i, gas.square];
            }
        });
    }

    /// Adds the solved change to the state.
    pub(crate) fn add(&mut self) {
        let rhs = &self.rhs;
        interior(&mut self.u, |cell, u| {
            let change = rhs.get::<5>(cell);
            std::array::from_fn(|m| u[m] + change[m])
        });
    }

    /// Returns the arrays, allocated at `site`.
    pub(crate) fn allocations(&self, site: &'static str) -> Vec<Allocation<'_>> {
        let [us, vs, ws] = &self.velocity;
        let scalars = [
            ("us", us),
            ("vs", vs),
            ("ws", ws),
            ("qs", &self.qs),
            ("rho_i", &self.rho_i),
            ("square", &self.square),
        ];
        let mut all = vec![self.u.allocation("u", site)];
        all.extend(scalars.map(|(name, data)| Allocation::f64(name, site, data)));
        all.extend([self.rhs.allocation("rhs", site), self.forcing.allocation("forcing", site)]);
        all
    }
}

/// Replaces the state of each interior cell by `change(cell, state)`.
pub(crate) fn interior(field: &mut Field, change: impl Fn(usize, State) -> State + Sync) {
    let n = field.side();
    field.planes_mut(Planes::K).into_par_iter().enumerate().skip(1).take(n - 2).for_each(|(k, mut plane)| {
        for (j, i) in pairs(1..n - 1) {
            let state = change((k * n + j) * n + i, plane.get(j, i));
            plane.put(j, i, 0, &state);
        }
    });
}

/// Iterates over every (row, column) of a square.
pub(crate) fn pairs(range: std::ops::Range<usize>) -> impl Iterator<Item = (usize, usize)> {
    range.clone().flat_map(move |row| range.clone().map(move |column| (row, column)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exact_state_is_steady() {
        for order in [Order::C, Order::Fortran] {
            let mut flow = Flow::new(9, 0.01, order);
            flow.set_state(gas::exact);
            flow.compute_rhs();
            let largest =
                (0..9 * 9 * 9).flat_map(|cell| flow.rhs.get::<5>(cell)).fold(0.0, |a: f64, b| a.max(b.abs()));
            assert!(largest < 1e-12, "{largest}");
        }
    }
}
