//! The length of each time step.

use rayon::prelude::*;

use super::Lulesh;

/// Simulated time at which the published problem ends.
pub(super) const END: f64 = 1e-2;
/// Quadratic viscosity in the Courant condition.
const COURANT_QUADRATIC: f64 = 2.0;
/// Largest change of volume in a step.
const VOLUME_CHANGE: f64 = 0.1;
/// A step grows by at least the first factor or not at all, and by at most the second.
const GROWTH: [f64; 2] = [1.1, 1.2];

/// Simulated time and the limits of the next step.
#[derive(Debug)]
pub(super) struct Clock {
    pub(super) cycle: u64,
    pub(super) time: f64,
    pub(super) dt: f64,
    courant: f64,
    hydro: f64,
}

impl Default for Clock {
    fn default() -> Self {
        Self { cycle: 0, time: 0.0, dt: 0.0, courant: 1e20, hydro: 1e20 }
    }
}

impl Clock {
    /// Creates a clock in the middle of the problem.
    pub(super) fn started(time: f64, dt: f64) -> Self {
        Self { time, dt, ..Self::default() }
    }

    /// Chooses and returns the next step; zero after the end of the problem.
    pub(super) fn advance(&mut self) -> f64 {
        if self.cycle > 0 {
            self.dt = self.limited_step();
        }
        let mut left = (END - self.time).max(0.0);
        // Two steps of two thirds beat one whole step and a tiny remainder.
        if left > self.dt && left < 4.0 * self.dt / 3.0 {
            left = 2.0 * self.dt / 3.0;
        }
        self.dt = self.dt.min(left);
        self.time += self.dt;
        self.cycle += 1;
        self.dt
    }

    fn limited_step(&self) -> f64 {
        let mut next = if self.courant < 1e20 { self.courant / 2.0 } else { 1e20 };
        if self.hydro < next {
            next = self.hydro * 2.0 / 3.0;
        }
        let growth = next / self.dt;
        if (1.0..GROWTH[0]).contains(&growth) {
            next = self.dt;
        } else if growth > GROWTH[1] {
            next = self.dt * GROWTH[1];
        }
        next.min(END)
    }
}

impl Lulesh {
    /// Computes the step limits of sound speed and volume change over all elements of all regions.
    pub(super) fn constrain_time(&mut self) {
        let elems = &self.elems;
        let limits = self.mesh.region_elems.par_iter().with_min_len(1024).map(|&element| {
            let i = element as usize;
            let (vdov, length) = (elems.vdov[i], elems.arealg[i]);
            if vdov == 0.0 {
                return [1e20, 1e20];
            }
            let closing = 8.0 * COURANT_QUADRATIC * length * vdov.min(0.0);
            let signal = (elems.ss[i] * elems.ss[i] + closing * closing).sqrt();
            [length / signal, VOLUME_CHANGE / (vdov.abs() + 1e-20)]
        });
        // A minimum is independent of thread order.
        [self.clock.courant, self.clock.hydro] =
            limits.reduce(|| [1e20, 1e20], |a, b| [a[0].min(b[0]), a[1].min(b[1])]);
    }
}
