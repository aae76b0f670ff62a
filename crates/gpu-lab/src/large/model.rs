//! Parameters of the acoustic wave: the grid, its rock, its source. A cell's velocity is defined
//! here and in `wave_model.cuh`; kernels receive the rest as a table.

use buddy_trace::pattern::scramble;
use serde::{Deserialize, Serialize};

use crate::Error;

/// Cells of a column, which a block traverses.
pub(super) const TILE: (u32, u32) = (64, 32);
/// Neighbouring cells that a cell needs, on each side.
pub(super) const RADIUS: usize = 4;
/// Weights of the Laplacian: order 8.
pub(super) const WEIGHTS: [f32; 5] = [-3.0 * 205.0 / 72.0, 8.0 / 5.0, -1.0 / 5.0, 8.0 / 315.0, -1.0 / 560.0];
/// Smaller numbers are stored as zero.
pub(super) const SMALLEST: f32 = 1e-30;
/// Cells of the damping layer on each side.
pub(super) const LAYER: usize = 24;
/// Distinct velocities.
pub(super) const VELOCITIES: usize = 256;
/// Bytes of a cell in plain memory: two fields and a velocity.
pub(super) const CELL_BYTES: u64 = 12;

/// Courant number of the fastest rock; the stability limit is 0.4528.
const COURANT: f64 = 0.42;
/// Cells per wavelength of the main frequency in the slowest rock.
const WAVELENGTH: f64 = 12.0;
/// Velocity of the slowest rock, relative to the fastest.
const SLOWEST: f64 = 0.6;
/// Damping exponent of the outermost cell in one step: exp(-0.12).
const DAMPING: f64 = 0.12;

/// Cells along x, y and z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grid {
    /// Along x, the direction of rows; a multiple of 64.
    pub x: u32,
    /// Along y, a multiple of 32.
    pub y: u32,
    /// Along z, which is depth.
    pub z: u32,
}

impl Grid {
    /// Returns the grid nearest to a cube whose plain fields take `bytes` bytes.
    pub fn of_bytes(bytes: f64) -> Self {
        let cells = (bytes / CELL_BYTES as f64).max(1.0);
        let near = |cells: f64, of: u32| ((cells / f64::from(of)).round() as u32).max(1) * of;
        let x = near(cells.cbrt(), TILE.0);
        let y = near((cells / f64::from(x)).sqrt(), TILE.1);
        let z = (cells / f64::from(x) / f64::from(y)).round() as u32;
        Self { x, y, z: z.max(LEAST_Z) }
    }

    /// Returns the grid with sides of `share` times the length, as far as tiles allow.
    pub(super) fn scaled(self, share: f64) -> Self {
        let scale =
            |cells: u32, of: u32| ((f64::from(cells) * share / f64::from(of)).round() as u32).max(1) * of;
        Self { x: scale(self.x, TILE.0), y: scale(self.y, TILE.1), z: scale(self.z, 1).max(LEAST_Z) }
    }

    /// Fails unless the kernels support it.
    pub fn check(self) -> Result<(), Error> {
        let whole =
            self.x.is_multiple_of(TILE.0) && self.y.is_multiple_of(TILE.1) && self.x > 0 && self.y > 0;
        let right = whole && self.z >= LEAST_Z && [self.x, self.y, self.z].iter().all(|&n| n <= 1 << 15);
        let why = "cells along x are a multiple of 64, along y of 32, along z at least 64, none over 32768";
        right.then_some(()).ok_or(Error::Cut { of: "grid of the wave", why })
    }

    /// Returns the number of cells.
    pub fn cells(self) -> u64 {
        u64::from(self.x) * u64::from(self.y) * u64::from(self.z)
    }

    /// Returns the bytes of the plain fields: two fields and the velocities, 4 bytes a cell each.
    pub fn plain_bytes(self) -> u64 {
        CELL_BYTES * self.cells()
    }

    /// Returns the cells of a plane.
    pub(super) fn plane(self) -> u64 {
        u64::from(self.x) * u64::from(self.y)
    }

    /// Returns the position of the source.
    pub(super) fn source(self) -> [u32; 3] {
        [self.x / 2, self.y / 2, (u64::from(self.z) * 7 / 16) as u32]
    }

    fn layers(self) -> i64 {
        i64::from(self.z / 24).clamp(1, VELOCITIES as i64 - 1)
    }

    /// Returns the velocity index of a cell: folded layers, faster with depth, and a body of salt.
    pub(super) fn velocity_index(self, [x, y, z]: [u32; 3]) -> usize {
        let part = |at: u32, of: u32| i64::from(at) * 4096 / i64::from(of);
        let (x, y, z) = (part(x, self.x), part(y, self.y), part(z, self.z));
        if 4 * (x - 2600).pow(2) + 3 * (y - 1700).pow(2) + 9 * (z - 2300).pow(2) < 4_000_000 {
            return VELOCITIES - 1;
        }
        let (along, across) = (x & 2047, (y + 700) & 4095);
        let fold = along.min(2047 - along) / 6 + across.min(4095 - across) / 9;
        ((z + fold) * self.layers() / (4096 + 398)) as usize
    }

    /// Returns the squared Courant numbers of all velocities, then the damping factors at depths 0,
    /// 1, ... of a layer.
    pub(super) fn table(self) -> Vec<f32> {
        let square = |k: usize| {
            let depth = ((k as f64 + 0.5) / self.layers() as f64).min(1.0);
            let uneven = 1.0 + 0.1 * ((scramble(k as u64) >> 40) as f64 / f64::from(1 << 24) - 0.5);
            let rock = ((SLOWEST + (0.95 - SLOWEST) * depth) * uneven).max(SLOWEST);
            let velocity = if k == VELOCITIES - 1 { 1.0 } else { rock };
            (COURANT * velocity).powi(2) as f32
        };
        let keep = |depth: usize| (-DAMPING * (depth as f64 / LAYER as f64).powi(2)).exp() as f32;
        (0..VELOCITIES).map(square).chain((0..=LAYER).map(keep)).collect()
    }

    /// Returns the steps until the wavelet has passed all six faces, along straight lines.
    pub(super) fn steps_to_boundaries(self) -> u32 {
        let (table, source, ends) = (self.table(), self.source(), [self.x, self.y, self.z]);
        let steps = |axis: usize, range: std::ops::Range<u32>| -> f64 {
            let at = |place: u32| std::array::from_fn(|k| if k == axis { place } else { source[k] });
            range.map(|place| 1.0 / f64::from(table[self.velocity_index(at(place))]).sqrt()).sum()
        };
        let ways =
            (0..3).flat_map(|axis| [steps(axis, 0..source[axis] + 1), steps(axis, source[axis]..ends[axis])]);
        (ways.fold(0.0, f64::max) + 2.4 * period()) as u32
    }
}

/// The fewest planes of a grid.
const LEAST_Z: u32 = 64;

/// Returns the steps in a period of the source's main frequency.
fn period() -> f64 {
    WAVELENGTH / (COURANT * SLOWEST)
}

/// Returns the source's amplitude in a step: a Ricker wavelet.
pub(super) fn push(step: u32) -> f32 {
    let (period, step) = (period(), f64::from(step));
    let a = std::f64::consts::PI * (step - 1.2 * period) / period;
    if step > 4.0 * period { 0.0 } else { ((1.0 - 2.0 * a * a) * (-a * a).exp()) as f32 }
}
