//! The pressure projection: a Poisson equation, solved exactly.
//!
//! Transforms along x and y leave one tridiagonal system along z per wave.

use rayon::prelude::*;

use super::{
    Palm,
    grid::Grid,
    hartley::{Hartley, transform_level},
};

/// Transforms of a grid.
#[derive(Debug)]
pub(super) struct Waves {
    along_x: Hartley,
    along_y: Hartley,
}

impl Waves {
    pub(super) fn new(grid: Grid) -> Self {
        Self { along_x: Hartley::new(grid.nx), along_y: Hartley::new(grid.ny) }
    }

    fn transform(&self, d: &mut [f64], level: usize) {
        d.par_chunks_mut(level).for_each(|level| transform_level(level, &self.along_x, &self.along_y));
    }
}

/// Returns the inverse pivots of each wave's tridiagonal system, level by level.
pub(super) fn pivots(grid: Grid) -> Vec<f64> {
    let wave = |k: usize, n: usize| 2.0 - 2.0 * (std::f64::consts::TAU * k as f64 / n as f64).cos();
    let level = grid.nx * grid.ny;
    let mut pivots = vec![0.0; grid.cells()];
    for at in 0..grid.cells() {
        let (i, j, k) = (at % grid.nx, at / grid.nx % grid.ny, at / level);
        let ends = usize::from(k == 0) + usize::from(k + 1 == grid.nz);
        let diagonal = -2.0 + ends as f64 - wave(i, grid.nx) - wave(j, grid.ny);
        let above = if k == 0 { 0.0 } else { pivots[at - level] };
        // The mean pressure is arbitrary; it is zero at the ground.
        pivots[at] = if (i, j, k) == (0, 0, 0) { 0.0 } else { 1.0 / (diagonal - above) };
    }
    pivots
}

impl Palm {
    /// Subtracts the pressure gradient that makes the velocities divergence-free.
    pub(super) fn project(&mut self, dt: f64) {
        let grid = self.grid;
        self.compute_divergence();
        let level = grid.nx * grid.ny;
        self.waves.transform(&mut self.divergence, level);
        self.solve_columns(dt);
        self.waves.transform(&mut self.divergence, level);
        self.spread_pressure();
        let (p, strides) = (&self.p, grid.strides());
        let slope = dt / grid.spacing();
        for (axis, velocity) in self.state[self.current][..3].iter_mut().enumerate() {
            let lowest = if axis == 2 { 2 } else { 1 };
            velocity.par_chunks_mut(grid.plane()).enumerate().take(grid.nz + 1).skip(lowest).for_each(
                |(k, level)| {
                    for at in grid.level() {
                        let place = k * grid.plane() + at;
                        level[at] -= slope * (p[place] - p[place - strides[axis]]);
                    }
                },
            );
        }
        self.fill_ghosts();
    }

    fn compute_divergence(&mut self) {
        let (grid, strides) = (self.grid, self.grid.strides());
        let [u, v, w, ..] = &self.state[self.current];
        let inverse = 1.0 / grid.spacing();
        self.divergence.par_chunks_mut(grid.nx * grid.ny).enumerate().for_each(|(k, level)| {
            for (d, at) in level.iter_mut().zip(grid.level()) {
                let at = at + (k + 1) * grid.plane();
                let out = |f: &[f64], stride: usize| f[at + stride] - f[at];
                *d = inverse * (out(u, strides[0]) + out(v, strides[1]) + out(w, strides[2]));
            }
        });
    }

    /// Solves the tridiagonal systems in place: forward elimination, then back substitution.
    fn solve_columns(&mut self, dt: f64) {
        let (grid, level) = (self.grid, self.grid.nx * self.grid.ny);
        let scale = grid.spacing().powi(2) / dt / level as f64;
        let (d, pivots) = (&mut self.divergence, &self.pivots);
        for k in 0..grid.nz {
            let (below, rest) = d.split_at_mut(k * level);
            let below = &below[(k.max(1) - 1) * level..];
            rest[..level].par_iter_mut().with_min_len(4096).enumerate().for_each(|(at, d)| {
                let under = below.get(at).copied().unwrap_or(0.0);
                *d = (*d * scale - under) * pivots[k * level + at];
            });
        }
        for k in (0..grid.nz - 1).rev() {
            let (rest, above) = d.split_at_mut((k + 1) * level);
            rest[k * level..].par_iter_mut().with_min_len(4096).enumerate().for_each(|(at, d)| {
                *d -= pivots[k * level + at] * above[at];
            });
        }
    }

    /// Copies the solution into the field with ghosts.
    fn spread_pressure(&mut self) {
        let (grid, d) = (self.grid, &self.divergence);
        self.p.par_chunks_mut(grid.plane()).enumerate().take(grid.nz + 1).skip(1).for_each(|(k, level)| {
            let from = &d[(k - 1) * grid.nx * grid.ny..];
            for (at, value) in grid.level().zip(from) {
                level[at] = *value;
            }
        });
        grid.wrap(&mut self.p);
        grid.continue_ends(&mut self.p);
    }

    /// Returns the largest divergence, as a share of the fastest wind per cell.
    pub(super) fn largest_divergence(&self) -> f64 {
        let strides = self.grid.strides();
        let winds = &self.state[self.current][..3];
        let divergence =
            |at: usize| winds.iter().zip(strides).map(|(f, s)| f[at + s] - f[at]).sum::<f64>().abs();
        self.grid.largest(divergence) / self.fastest()
    }
}
