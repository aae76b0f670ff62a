//! Distance of a run from the steady state, and NAS's published norms.

use rayon::prelude::*;

use super::{Flow, Gas, State, gas, operator::Operator, pairs};
use crate::workload::Check;

/// Published norms of a class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Reference {
    pub(crate) n: usize,
    pub(crate) dt: f64,
    pub(crate) steps: u64,
    pub(crate) residual: State,
    pub(crate) error: State,
}

/// The size of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Problem {
    pub(crate) n: usize,
    pub(crate) dt: f64,
    pub(crate) steps: u64,
    pub(crate) reference: Option<&'static Reference>,
}

impl Problem {
    /// Returns the problem of a grid of `n` cells per side: a class if `n` is one of `classes`,
    /// else `steps` steps of the length that NAS uses for the next larger of `lengths`.
    pub(crate) fn sized(
        n: usize,
        steps: u64,
        classes: &'static [Reference],
        lengths: &[(usize, f64)],
    ) -> Self {
        if let Some(class) = classes.iter().find(|class| class.n == n) {
            return Self { n, dt: class.dt, steps: class.steps, reference: Some(class) };
        }
        let length = lengths.iter().find(|(side, _)| n <= *side).or(lengths.last());
        Self { n, dt: length.map_or(0.0, |length| length.1), steps, reference: None }
    }

    /// Returns the side of the largest grid whose `doubles` numbers per cell fit in `bytes`.
    pub(crate) fn side(bytes: u64, doubles: usize) -> usize {
        (1..).take_while(|n| n * n * n * doubles * 8 <= bytes as usize).last().unwrap_or(1)
    }
}

/// Root mean squares over the grid, one for each of the five equations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Norms {
    /// Residual per unit of time.
    residual: State,
    /// Distance from the exact state.
    error: State,
}

impl Norms {
    pub(crate) fn of(flow: &Flow) -> Self {
        let n = flow.n;
        let operator = Operator::new(n);
        let gas = |cell: usize| Gas::of(flow.u.get(cell));
        let residual = |[i, j, k]: [usize; 3]| {
            let cell = (k * n + j) * n + i;
            let (change, forcing) = (operator.apply(cell, &gas), flow.forcing.get::<5>(cell));
            std::array::from_fn(|m| change[m] + forcing[m])
        };
        let error = |[i, j, k]: [usize; 3]| {
            let (exact, u) = (gas::exact(flow.point([i, j, k])), flow.u.get::<5>((k * n + j) * n + i));
            std::array::from_fn(|m| u[m] - exact[m])
        };
        let inner = ((n - 2) * (n - 2) * (n - 2)) as f64;
        let mean = |squares: State| squares.map(|sum| (sum / inner).sqrt());
        Self { residual: mean(squares(1..n - 1, residual)), error: mean(squares(0..n, error)) }
    }

    /// Compares with the published norms of a class. Other sizes must approach the steady state in
    /// all five equations: at most half of the initial residual, and less than the initial error.
    pub(crate) fn check(&self, start: &Self, reference: Option<&Reference>) -> Vec<Check> {
        let (end, start) = (list(self.residual, self.error), list(start.residual, start.error));
        let against = |class: &Reference| {
            let published = list(class.residual, class.error);
            let check = |at: usize| (end[at], published[at], 1e-8 * published[at]);
            (0..10).map(check).collect::<Vec<_>>()
        };
        let nearer = || {
            let most = list([0.5; 5], [1.0 - 1e-9; 5]);
            (0..10).map(|at| (end[at] / start[at], most[at] / 2.0, most[at] / 2.0)).collect()
        };
        let values = reference.map_or_else(nearer, against).into_iter().zip(NAMES);
        let check = |((measured, expected, tolerance), what)| Check { what, measured, expected, tolerance };
        values.map(check).collect()
    }
}

const NAMES: [&str; 10] = [
    "residual, density",
    "residual, x momentum",
    "residual, y momentum",
    "residual, z momentum",
    "residual, energy",
    "error, density",
    "error, x momentum",
    "error, y momentum",
    "error, z momentum",
    "error, energy",
];

/// Returns residuals and errors in the order of their names.
fn list(residual: State, error: State) -> Vec<f64> {
    [residual, error].concat()
}

/// Returns sums of squares over a cube of cells, plane by plane in order.
fn squares(range: std::ops::Range<usize>, value: impl Fn([usize; 3]) -> State + Sync) -> State {
    let plane = |k: usize| {
        pairs(range.clone()).fold([0.0; 5], |sum: State, (j, i)| {
            let value = value([i, j, k]);
            std::array::from_fn(|m| sum[m] + value[m] * value[m])
        })
    };
    let planes: Vec<State> = range.clone().into_par_iter().map(plane).collect();
    planes.iter().fold([0.0; 5], |sum, plane| std::array::from_fn(|m| sum[m] + plane[m]))
}
