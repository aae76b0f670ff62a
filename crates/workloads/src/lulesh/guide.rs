//! A coarse mesh that guides a mesh without published results through the blast.
//!
//! A blast needs about 34 cycles per element along an edge, so 90 elements per side need 3000. The
//! coarse mesh has a quarter of the elements per side, at least eight, and runs the whole problem
//! up to 256 times faster. Ten times, evenly spaced in simulated time, the large mesh interpolates
//! the coarse state and then computes [`CYCLES`]` / 10` cycles of its own.

use rayon::prelude::*;

use super::{Lulesh, eos, hex, time};
use crate::Workload;

/// Cycles of a large mesh.
pub(super) const CYCLES: u64 = 160;
/// Number of times that the large mesh takes the coarse state.
const REFRESHES: u64 = 10;
/// Coarsening factor per side.
const COARSENING: usize = 4;

/// Fewest elements per side of a coarse mesh; a coarser state cannot be continued on a finer mesh.
const MIN_EDGE: usize = 8;

/// The coarse mesh, and the progress of the large one.
pub(super) struct CoarseGuide {
    coarse: Box<Lulesh>,
    cycle: u64,
}

impl CoarseGuide {
    pub(super) fn new(edge: usize, seed: u64) -> Self {
        Self { coarse: Box::new(Lulesh::new((edge / COARSENING).max(edge.min(MIN_EDGE)), seed)), cycle: 0 }
    }

    /// Called before each cycle of the large mesh; refreshes it from the coarse state when due.
    pub(super) fn guide(&mut self, fine: &mut Lulesh) {
        if self.cycle.is_multiple_of(CYCLES / REFRESHES) {
            let part = self.cycle as f64 / CYCLES as f64;
            let until = time::END * (part + 0.1 / REFRESHES as f64);
            while self.coarse.clock.time < until {
                self.coarse.step();
            }
            fine.refresh(&self.coarse);
        }
        self.cycle += 1;
    }
}

impl Lulesh {
    /// Interpolates the state of a coarser mesh.
    fn refresh(&mut self, coarse: &Lulesh) {
        let (edge, ratio) = (self.mesh.edge, coarse.mesh.edge as f64 / self.mesh.edge as f64);
        let nodes = Lattice { side: coarse.mesh.edge + 1, fine: edge + 1, ratio, offset: 0.0 };
        let elements = Lattice { side: coarse.mesh.edge, fine: edge, ratio, offset: 0.5 };
        for axis in 0..3 {
            nodes.interpolate(&coarse.position[axis], &mut self.position[axis]);
            nodes.interpolate(&coarse.velocity[axis], &mut self.velocity[axis]);
        }
        elements.interpolate(&coarse.elems.e, &mut self.elems.e);
        elements.interpolate(&coarse.elems.q, &mut self.elems.q);
        self.settle_elements();
        self.clock = time::Clock::started(coarse.clock.time, 0.5 * ratio * coarse.clock.dt);
        self.start_energy = self.total_energy();
    }

    /// Recomputes volumes from node positions, and pressures and speeds of sound from energies.
    fn settle_elements(&mut self) {
        let (mesh, position, elems) = (&self.mesh, &self.position, &mut self.elems);
        let (e, volo) = (&elems.e, &elems.volo);
        (&mut elems.v, &mut elems.p, &mut elems.ss).into_par_iter().enumerate().for_each(
            |(i, (v, p, ss))| {
                *v = hex::volume(&mesh.gather(position, i)) / volo[i];
                (*p, *ss) = eos::at_rest(e[i], *v);
            },
        );
    }
}

/// A cube of points for interpolation from a coarse to a finer field.
struct Lattice {
    side: usize,
    fine: usize,
    ratio: f64,
    /// Offset of the first point in cells: 0 for nodes, a half for element centres.
    offset: f64,
}

impl Lattice {
    /// Interpolates linearly in each direction; constant beyond the outermost points.
    fn interpolate(&self, coarse: &[f64], fine: &mut [f64]) {
        let places: Vec<(usize, f64)> = (0..self.fine).map(|i| self.place(i)).collect();
        let blend = |a: f64, b: f64, t: f64| a + (b - a) * t;
        fine.par_iter_mut().enumerate().with_min_len(1024).for_each(|(i, value)| {
            let [(x, tx), (y, ty), (z, tz)] =
                [i % self.fine, i / self.fine % self.fine, i / self.fine / self.fine].map(|i| places[i]);
            let along_x = |y: usize, z: usize| {
                let row = self.side * (y + self.side * z);
                blend(coarse[row + x], coarse[row + x + 1], tx)
            };
            let along_y = |z: usize| blend(along_x(y, z), along_x(y + 1, z), ty);
            *value = blend(along_y(z), along_y(z + 1), tz);
        });
    }

    /// Returns the coarse point below a fine one, and the fraction beyond it.
    fn place(&self, fine: usize) -> (usize, f64) {
        let at = (fine as f64 + self.offset) * self.ratio - self.offset;
        let below = at.max(0.0).min((self.side - 2) as f64).floor();
        (below as usize, (at - below).clamp(0.0, 1.0))
    }
}
