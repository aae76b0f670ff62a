//! The grid: a box of cubes, periodic in x and y, with one layer of ghost cells.
//!
//! Velocities are on the lower cell faces along their own axis (Arakawa C grid); all else is at
//! cell centres.

use rayon::prelude::*;

use crate::lockstep::lockstep;

/// Height of the domain in metres.
const HEIGHT: f64 = 3000.0;

/// Cells along x, y and z, without ghosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grid {
    pub(super) nx: usize,
    pub(super) ny: usize,
    pub(super) nz: usize,
}

impl Grid {
    /// Returns the cell size in metres.
    pub(super) fn spacing(self) -> f64 {
        HEIGHT / self.nz as f64
    }

    /// Returns the strides along each axis.
    pub(super) fn strides(self) -> [usize; 3] {
        [1, self.nx + 2, self.plane()]
    }

    /// Returns the cells of a level, with ghosts.
    pub(super) fn plane(self) -> usize {
        (self.nx + 2) * (self.ny + 2)
    }

    /// Returns the cells of a field, with ghosts.
    pub(super) fn len(self) -> usize {
        self.plane() * (self.nz + 2)
    }

    /// Returns the number of cells, without ghosts.
    pub(super) fn cells(self) -> usize {
        self.nx * self.ny * self.nz
    }

    /// Returns the row starts within a level, without ghosts.
    pub(super) fn rows(self) -> impl Iterator<Item = usize> + Clone {
        (1..=self.ny).map(move |j| 1 + j * (self.nx + 2))
    }

    /// Returns the cell indices within a level, without ghosts.
    pub(super) fn level(self) -> impl Iterator<Item = usize> + Clone {
        self.rows().flat_map(move |row| row..row + self.nx)
    }

    /// Sets every cell of levels `first` and above from its index; ghosts are unchanged.
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

    /// Fills the periodic ghosts in x and y.
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

    /// Copies the lowest and highest levels into the ghosts below and above: no diffusive flux.
    pub(super) fn continue_ends(self, field: &mut [f64]) {
        let plane = self.plane();
        field.copy_within(plane..2 * plane, 0);
        field.copy_within(self.nz * plane..(self.nz + 1) * plane, (self.nz + 1) * plane);
    }

    /// Returns the mean of each level from the ground up, each summed in order.
    pub(super) fn level_means(self, field: &[f64]) -> Vec<f64> {
        let levels = field.par_chunks(self.plane()).skip(1).take(self.nz);
        let means =
            levels.map(|level| self.level().map(|at| level[at]).sum::<f64>() / (self.nx * self.ny) as f64);
        means.collect()
    }

    /// Returns the largest value of a function of a cell, independent of thread order.
    pub(super) fn largest(self, value: impl Fn(usize) -> f64 + Sync) -> f64 {
        let level = |k: usize| self.level().fold(0.0, |most: f64, at| most.max(value(k * self.plane() + at)));
        (1..=self.nz).into_par_iter().map(level).reduce(|| 0.0, f64::max)
    }
}
