//! The grid: a box of cubes, periodic in x and y, with a rim of ghost cells one wide.
//!
//! Velocities lie on the lower faces of the cells along their own axis (Arakawa's C grid); everything else lies
//! in the middle.

use rayon::prelude::*;

use crate::lockstep::lockstep;

/// Height of the air in metres.
const HEIGHT: f64 = 3000.0;

/// Cells along x, y and z, ghosts aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grid {
    pub(super) nx: usize,
    pub(super) ny: usize,
    pub(super) nz: usize,
}

impl Grid {
    /// Cell size in metres.
    pub(super) fn spacing(self) -> f64 {
        HEIGHT / self.nz as f64
    }

    /// Distance in memory between neighbours along each axis.
    pub(super) fn strides(self) -> [usize; 3] {
        [1, self.nx + 2, self.plane()]
    }

    /// Cells of a level, with ghosts.
    pub(super) fn plane(self) -> usize {
        (self.nx + 2) * (self.ny + 2)
    }

    /// Cells of a field, with ghosts.
    pub(super) fn len(self) -> usize {
        self.plane() * (self.nz + 2)
    }

    /// Cells that are computed, without the ghosts around them.
    pub(super) fn cells(self) -> usize {
        self.nx * self.ny * self.nz
    }

    /// Where the rows of a level begin within it, ghosts aside.
    pub(super) fn rows(self) -> impl Iterator<Item = usize> + Clone {
        (1..=self.ny).map(move |j| 1 + j * (self.nx + 2))
    }

    /// Where the cells of a level lie within it, ghosts aside.
    pub(super) fn level(self) -> impl Iterator<Item = usize> + Clone {
        self.rows().flat_map(move |row| row..row + self.nx)
    }

    /// Sets every cell of levels `first` and above from its place; ghosts keep what they had.
    pub(super) fn fill(self, field: &mut [f64], first: usize, value: impl Fn(usize) -> f64 + Sync) {
        field.par_chunks_mut(self.plane()).enumerate().take(self.nz + 1).skip(first).for_each(
            |(k, level)| {
                for row in self.rows() {
                    let start = k * self.plane() + row;
                    for (i, cell) in level[row..row + self.nx].iter_mut().enumerate() {
                        *cell = value(start + i);
                    }
                }
            },
        );
    }

    /// Sets two fields at once.
    pub(super) fn fill_both(self, fields: [&mut [f64]; 2], values: impl Fn(usize) -> (f64, f64) + Sync) {
        let levels = lockstep(fields, self.plane());
        levels.into_par_iter().enumerate().take(self.nz + 1).skip(1).for_each(|(k, [first, second])| {
            for at in self.level() {
                (first[at], second[at]) = values(k * self.plane() + at);
            }
        });
    }

    /// Wraps the ghosts round in x and y.
    pub(super) fn wrap(self, field: &mut [f64]) {
        let (nx, ny, row) = (self.nx, self.ny, self.nx + 2);
        field.par_chunks_mut(self.plane()).for_each(|level| {
            level.copy_within(ny * row..(ny + 1) * row, 0);
            level.copy_within(row..2 * row, (ny + 1) * row);
            for cells in level.chunks_exact_mut(row) {
                cells[0] = cells[nx];
                cells[nx + 1] = cells[1];
            }
        });
    }

    /// Continues the lowest and highest levels into the ghosts below and above: nothing flows through by mixing.
    pub(super) fn continue_ends(self, field: &mut [f64]) {
        let plane = self.plane();
        field.copy_within(plane..2 * plane, 0);
        field.copy_within(self.nz * plane..(self.nz + 1) * plane, (self.nz + 1) * plane);
    }

    /// The mean of each level from the ground up, each summed in order.
    pub(super) fn level_means(self, field: &[f64]) -> Vec<f64> {
        let levels = field.par_chunks(self.plane()).skip(1).take(self.nz);
        let means =
            levels.map(|level| self.level().map(|at| level[at]).sum::<f64>() / (self.nx * self.ny) as f64);
        means.collect()
    }

    /// The largest value of a function of a cell; the order of threads does not matter.
    pub(super) fn largest(self, value: impl Fn(usize) -> f64 + Sync) -> f64 {
        let level = |k: usize| self.level().fold(0.0, |most: f64, at| most.max(value(k * self.plane() + at)));
        (1..=self.nz).into_par_iter().map(level).reduce(|| 0.0, f64::max)
    }
}
