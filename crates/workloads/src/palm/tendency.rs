//! Tendencies of each field: advection, diffusion and forcing.

use super::{
    E, PT, V, W,
    grid::Grid,
    turbulence::{self, GRAVITY, REFERENCE},
};

/// Surface heat flux in kelvin metres per second: about 100 watts per square metre.
pub(super) const HEAT: f64 = 0.083;
/// Surface drag on the lowest level.
const DRAG: f64 = 5e-3;

/// Fields that the tendencies depend on.
pub(super) struct Air<'a> {
    pub(super) grid: Grid,
    pub(super) strides: [usize; 3],
    pub(super) cell: f64,
    pub(super) fields: &'a [Vec<f64>; 5],
    pub(super) km: &'a [f64],
    pub(super) kh: &'a [f64],
    /// Mean potential temperature of each level.
    mean: Vec<f64>,
}

impl<'a> Air<'a> {
    pub(super) fn new(grid: Grid, fields: &'a [Vec<f64>; 5], km: &'a [f64], kh: &'a [f64]) -> Self {
        let mean = grid.level_means(&fields[PT]);
        Self { grid, strides: grid.strides(), cell: grid.spacing(), fields, km, kh, mean }
    }

    /// Sets `out` to the tendency of a field per second.
    pub(super) fn compute_tendency(&self, field: usize, out: &mut [f64]) {
        let at_ground = |at: usize| at < 2 * self.grid.plane();
        match field {
            W => self.grid.fill(out, 2, |at| self.wind(W, at) + self.buoyancy(at)),
            PT => self.grid.fill(out, 1, |at| {
                let heating = if at_ground(at) { HEAT / self.cell } else { 0.0 };
                self.carried(PT, 0, at) + self.mixed(PT, at, self.kh) + heating
            }),
            E => self.grid.fill(out, 1, |at| {
                let mixed = 2.0 * self.mixed(E, at, self.km);
                self.carried(E, 0, at) + mixed + turbulence::production(self, at, at_ground(at))
            }),
            wind => self.grid.fill(out, 1, |at| {
                let drag = if at_ground(at) { self.drag(wind, at) } else { 0.0 };
                self.wind(wind, at) - drag
            }),
        }
    }

    #[inline]
    fn wind(&self, axis: usize, at: usize) -> f64 {
        self.carried(axis, self.strides[axis], at) + self.stressed(axis, at)
    }

    /// Advection in flux form, second order. A velocity is `back` from the centre of its cell, so
    /// the advecting wind is a mean of two.
    #[inline]
    fn carried(&self, field: usize, back: usize, at: usize) -> f64 {
        let f = &self.fields[field];
        let mut flux = 0.0;
        for (axis, stride) in self.strides.into_iter().enumerate() {
            let wind = &self.fields[axis];
            let (out, into) = (wind[at + stride] + wind[at + stride - back], wind[at] + wind[at - back]);
            flux += into * (f[at] + f[at - stride]) - out * (f[at + stride] + f[at]);
        }
        flux / (4.0 * self.cell)
    }

    /// Diffusion by eddies: down-gradient flux.
    #[inline]
    fn mixed(&self, field: usize, at: usize, k: &[f64]) -> f64 {
        let f = &self.fields[field];
        let mut flux = 0.0;
        for stride in self.strides {
            flux += (k[at + stride] + k[at]) * (f[at + stride] - f[at]);
            flux -= (k[at] + k[at - stride]) * (f[at] - f[at - stride]);
        }
        0.5 * flux / self.cell.powi(2)
    }

    /// Divergence of the subgrid stress.
    #[inline]
    fn stressed(&self, axis: usize, at: usize) -> f64 {
        let mut force = 0.0;
        for (other, stride) in self.strides.into_iter().enumerate() {
            force += self.stress(axis, other, at + stride) - self.stress(axis, other, at);
        }
        force / self.cell.powi(2)
    }

    /// Returns the stress on the lower face along `other`, times the cell size.
    #[inline]
    fn stress(&self, axis: usize, other: usize, at: usize) -> f64 {
        let (k, strides) = (self.km, self.strides);
        let (a, b) = (strides[axis], strides[other]);
        if axis == other {
            return 2.0 * k[at - a] * (self.fields[axis][at] - self.fields[axis][at - a]);
        }
        0.25 * (k[at] + k[at - a] + k[at - b] + k[at - a - b]) * self.shear(axis, other, at)
    }

    /// Returns the deformation at a cell's lower edge, times the cell size.
    #[inline]
    pub(super) fn shear(&self, axis: usize, other: usize, at: usize) -> f64 {
        let strides = self.strides;
        let (f, g) = (&self.fields[axis], &self.fields[other]);
        f[at] - f[at - strides[other]] + g[at] - g[at - strides[axis]]
    }

    fn drag(&self, axis: usize, at: usize) -> f64 {
        let speed = self.fields[0][at].hypot(self.fields[V][at]);
        DRAG * speed * self.fields[axis][at] / self.cell
    }

    /// Buoyancy: the excess over the level's mean, halfway between two levels.
    fn buoyancy(&self, at: usize) -> f64 {
        let (plane, pt) = (self.grid.plane(), &self.fields[PT]);
        let k = at / plane;
        let excess = pt[at] - self.mean[k - 1] + pt[at - plane] - self.mean[k - 2];
        0.5 * GRAVITY / REFERENCE * excess
    }
}
