//! HPGMG-FV: geometric multigrid for an elliptic equation with varying coefficients, second order,
//! in doubles.
//!
//! Follows Adams and others, "HPGMG 1.0" (LBNL-6630E): finite volumes on levels of boxes with ghost
//! zones, a Chebyshev smoother, and solves of one full-multigrid cycle followed by V-cycles. One
//! step is one cycle. Each level is one array in which a box's vectors follow one another, which
//! gives its memory stripes.

mod level;
mod problem;
mod stencil;
#[cfg(test)]
mod tests;
mod trace;
mod transfer;

use buddy_trace::Application;

use crate::{Allocation, Check, Info, Workload};
use level::{F, Level, RESIDUAL, Shape, U, UTRUE};
use stencil::{SMOOTHER, SOLVER};
use transfer::{interpolate, restrict};

/// Entry of `buddy workload list`.
pub(crate) const INFO: Info = Info {
    name: "hpgmg",
    paper_name: "FF_HPGMG-FV",
    method: "finite-volume multigrid with varying coefficients on levels of boxes",
    paper_bytes: 2_320_000_000,
    seconds_per_mb: 0.09,
    simulated_seconds_per_mb: 0.17,
    has_host_memory: true,
    footprint: |bytes| footprint(shape_for(bytes)),
    build: |bytes, _seed| Box::new(Hpgmg::new(shape_for(bytes))),
};

/// Cycles of a solve: one full-multigrid cycle, then V-cycles.
const CYCLES: u64 = 10;
/// Solves of a run.
const SOLVES: u64 = 3;

/// The running program; the finest level is first.
struct Hpgmg {
    levels: Vec<Level>,
    steps_done: u64,
    /// Largest residual of the finest level before the first and after every cycle of the current
    /// solve.
    residuals: Vec<f64>,
}

/// Returns the level and all coarser ones.
fn hierarchy(finest: Shape) -> impl Iterator<Item = Shape> {
    std::iter::successors(Some(finest), |shape| shape.coarser())
}

/// Returns the bytes of all arrays.
fn footprint(finest: Shape) -> u64 {
    let lengths = hierarchy(finest).flat_map(|shape| shape.lengths(shape == finest));
    lengths.map(|length| 8 * length as u64).sum()
}

/// Returns the shape with the largest boxes among those within a twentieth of the best fit.
fn shape_for(bytes: u64) -> Shape {
    let shapes = (2..=9).flat_map(|boxes| (2..=8).map(move |power| Shape { boxes, dim: 1 << power }));
    let fitting = shapes.filter(|shape| footprint(*shape) <= bytes + bytes / 20);
    let rank = |shape: &Shape| {
        let taken = footprint(*shape);
        let most = taken * 10 >= bytes * 6;
        (most, if most { shape.dim } else { 0 }, taken)
    };
    fitting.max_by_key(rank).unwrap_or(Shape { boxes: 2, dim: 4 })
}

impl Hpgmg {
    fn new(finest: Shape) -> Self {
        let levels = hierarchy(finest).map(|shape| Level::new(shape, shape == finest)).collect();
        Self { levels, steps_done: 0, residuals: Vec::new() }
    }

    /// Begins a solve from a zero solution.
    fn reset(&mut self) {
        self.levels[0].each_box(|_, vectors| vectors[U].fill(0.0));
        self.residuals = vec![self.levels[0].norm(F)];
    }

    /// Runs a full-multigrid cycle: solves on the coarsest level, then on each finer one from the
    /// interpolated solution.
    fn full_cycle(&mut self) {
        for level in 1..self.levels.len() {
            let (fine, coarse) = pair(&mut self.levels, level - 1);
            restrict(fine, F, coarse, F);
        }
        let coarsest = self.levels.len() - 1;
        self.levels[coarsest].each_box(|_, vectors| vectors[U].fill(0.0));
        self.levels[coarsest].smooth(SOLVER);
        for level in (0..coarsest).rev() {
            let (fine, coarse) = pair(&mut self.levels, level);
            interpolate(coarse, fine, 0.0);
            self.v_cycle(level);
        }
    }

    /// Runs a V-cycle: smooths, applies the coarse-grid correction, and smooths again.
    fn v_cycle(&mut self, level: usize) {
        if level + 1 == self.levels.len() {
            return self.levels[level].smooth(SOLVER);
        }
        self.levels[level].smooth(SMOOTHER);
        self.levels[level].compute_residual();
        let (fine, coarse) = pair(&mut self.levels, level);
        restrict(fine, RESIDUAL, coarse, F);
        coarse.each_box(|_, vectors| vectors[U].fill(0.0));
        self.v_cycle(level + 1);
        let (fine, coarse) = pair(&mut self.levels, level);
        interpolate(coarse, fine, 1.0);
        self.levels[level].smooth(SMOOTHER);
    }

    /// Returns the residual reduction of a late V-cycle, before rounding dominates.
    fn cycle_factor(&self) -> f64 {
        let floor = 1e-9 * self.residuals[0];
        let seen = self.residuals[1..].windows(2).take_while(|pair| pair[1] > floor);
        seen.last().map_or(f64::NAN, |pair| pair[1] / pair[0])
    }

    /// Returns the largest difference from the true solution, in units of the cell size squared.
    fn error(&self) -> f64 {
        let finest = &self.levels[0];
        finest.largest(|vectors, at| vectors[U][at] - vectors[UTRUE][at]) / finest.shape.h().powi(2)
    }
}

/// Borrows a level and the next coarser one.
fn pair(levels: &mut [Level], fine: usize) -> (&mut Level, &mut Level) {
    let (finer, coarser) = levels.split_at_mut(fine + 1);
    (&mut finer[fine], &mut coarser[0])
}

impl Workload for Hpgmg {
    fn steps(&self) -> u64 {
        SOLVES * CYCLES
    }

    fn step(&mut self) {
        if self.steps_done.is_multiple_of(CYCLES) {
            self.reset();
            self.full_cycle();
        } else {
            self.v_cycle(0);
        }
        self.levels[0].compute_residual();
        self.residuals.push(self.levels[0].norm(RESIDUAL));
        self.steps_done += 1;
    }

    fn allocations(&self) -> Vec<Allocation<'_>> {
        let mut list = Vec::new();
        for (n, level) in self.levels.iter().enumerate() {
            let name = |array: &str| format!("level{n}.{array}");
            list.push(Allocation::f64(name("vectors"), "level.c:create_vectors", &level.vectors));
            list.push(Allocation::f64(name("exchange"), "level.c:build_exchange_ghosts", &level.exchange));
            if n > 0 {
                list.push(Allocation::f64(name("copy"), "mg.c:build_restriction", &level.copy));
            }
        }
        list
    }

    fn application(&self) -> Application {
        trace::application(self)
    }

    fn check(&self) -> Vec<Check> {
        vec![
            Check {
                what: "residual factor of a V-cycle",
                measured: self.cycle_factor(),
                expected: 0.07,
                tolerance: 0.05,
            },
            // Second order: the error is this constant times the cell size squared, up to fourth
            // order.
            Check {
                what: "error over cell size squared",
                measured: self.error(),
                expected: 3.36,
                tolerance: 0.02 + 50.0 * self.levels[0].shape.h().powi(2),
            },
        ]
    }
}
