//! ILBDC: a lattice-Boltzmann fluid driven through a porous channel, over a list of its fluid
//! cells.
//!
//! Follows the kernel of the International Lattice Boltzmann Development Consortium that SPEC ACCEL
//! took as 360.ilbdc: D3Q19, two relaxation times, double precision, and a list that tells each
//! population where it streams from, so that solid cells take no memory. The fluid starts at rest
//! and is driven along x.

mod geometry;
mod lattice;
#[cfg(test)]
mod tests;
mod trace;

use buddy_trace::{Application, pattern::List};
use rayon::prelude::*;

use crate::{Allocation, Check, Info, Workload, lockstep::lockstep};
use geometry::Channel;
use lattice::{VISCOSITY, collide, moments, weight};

/// Entry of `buddy workload list`.
pub(crate) const INFO: Info = Info {
    name: "ilbdc",
    paper_name: "360.ilbdc",
    method: "D3Q19 lattice Boltzmann over a list of fluid cells in a porous channel",
    paper_bytes: 1_940_000_000,
    seconds_per_mb: 0.26,
    simulated_seconds_per_mb: 0.12,
    has_host_memory: false,
    footprint: |bytes| footprint(size_for(bytes), expected_fluid(size_for(bytes))),
    build: |bytes, seed| Box::new(Ilbdc::new(Channel::new(size_for(bytes), BEADS, seed), PUSH)),
};

/// Share of the channel filled by beads.
const BEADS: f64 = 0.3;
/// Body force along x, in lattice units.
const PUSH: f64 = 1e-4;
/// Time steps: several times the settling time of the fluid in a pore.
const STEPS: u64 = 400;
/// Cells per task.
const BLOCK: usize = 4096;

struct Ilbdc {
    channel: Channel,
    force: f64,
    /// Populations at even and odd times: 19 arrays of fluid cells each.
    pdf: [Vec<f64>; 2],
    /// Source index of each population's streaming.
    list: List,
    time: u64,
}

/// Returns the bytes of all arrays for a box and its number of fluid cells.
fn footprint(size: [usize; 3], fluid: usize) -> u64 {
    (fluid * (2 * 19 * 8 + 18 * 4) + size.iter().product::<usize>() * 4) as u64
}

/// Returns the expected number of fluid cells of a box, to within a bead.
fn expected_fluid([nx, ny, nz]: [usize; 3]) -> usize {
    ((nx * (ny - 2) * nz) as f64 * (1.0 - BEADS)) as usize
}

/// Returns the largest box that fits: five long, three high, three deep, as in the benchmark's
/// reference data.
fn size_for(bytes: u64) -> [usize; 3] {
    let sized = |n: usize| [5 * n / 3, n + 2, n];
    let fits = |n: &usize| footprint(sized(*n), expected_fluid(sized(*n))) <= bytes;
    sized((6..).take_while(fits).last().unwrap_or(6))
}

impl Ilbdc {
    fn new(channel: Channel, force: f64) -> Self {
        let rest: Vec<f64> = (0..19).flat_map(|i| std::iter::repeat_n(weight(i), channel.fluid)).collect();
        Self { force, pdf: [rest.clone(), rest], list: List::new(channel.streaming_list()), time: 0, channel }
    }

    /// Returns the populations after the last step.
    fn now(&self) -> &[f64] {
        &self.pdf[(self.time % 2) as usize]
    }

    /// Returns one cell's populations after streaming.
    #[inline]
    fn stream(old: &[f64], list: &[i32], fluid: usize, cell: usize) -> [f64; 19] {
        std::array::from_fn(|i| match i {
            0 => old[cell],
            _ => old[list[(i - 1) * fluid + cell] as usize],
        })
    }

    /// Returns the speed along x of a fluid cell, with half of this step's force.
    fn speed(&self, cell: usize) -> f64 {
        let f = Self::stream(self.now(), &self.list, self.channel.fluid, cell);
        let (density, momentum) = moments(&f);
        (momentum[0] + 0.5 * self.force) / density
    }

    fn mass(&self) -> f64 {
        self.now().iter().sum()
    }
}

/// Returns the largest error of Poiseuille flow between plain walls, as a share of the fastest
/// speed.
fn poiseuille_error() -> f64 {
    const HEIGHT: usize = 10;
    let mut open = Ilbdc::new(Channel::new([2, HEIGHT + 2, 2], 0.0, 0), 1e-6);
    for _ in 0..1500 {
        open.step();
    }
    let parabola = |y: f64| open.force / (2.0 * VISCOSITY) * y * (HEIGHT as f64 - y);
    let fastest = parabola(HEIGHT as f64 / 2.0);
    let error = |row: usize| (open.speed(2 * row) - parabola(row as f64 + 0.5)).abs() / fastest;
    (0..HEIGHT).map(error).fold(0.0, f64::max)
}

impl Workload for Ilbdc {
    fn steps(&self) -> u64 {
        STEPS
    }

    fn step(&mut self) {
        let (fluid, list, force) = (self.channel.fluid, &self.list, self.force);
        let [even, odd] = &mut self.pdf;
        let (old, new) = if self.time.is_multiple_of(2) { (even, odd) } else { (odd, even) };
        let mut lists = new.chunks_exact_mut(fluid);
        let lists: [&mut [f64]; 19] = std::array::from_fn(|_| lists.next().unwrap_or_default());
        let blocks = lockstep(lists, BLOCK);
        blocks.into_par_iter().enumerate().for_each(|(block, mut new)| {
            for cell in 0..new[0].len() {
                let mut f = Self::stream(old, list, fluid, block * BLOCK + cell);
                collide(&mut f, force);
                for (list, f) in new.iter_mut().zip(f) {
                    list[cell] = f;
                }
            }
        });
        self.time += 1;
    }

    fn allocations(&self) -> Vec<Allocation<'_>> {
        vec![
            Allocation::f64("pdf_even", "ilbdc:allocate_pdf", &self.pdf[0]),
            Allocation::f64("pdf_odd", "ilbdc:allocate_pdf", &self.pdf[1]),
            Allocation::i32("list", "ilbdc:build_list", &self.list),
            Allocation::i32("cells", "ilbdc:read_geometry", &self.channel.cells),
        ]
    }

    fn application(&self) -> Application {
        trace::application(self)
    }

    fn check(&self) -> Vec<Check> {
        vec![
            Check {
                what: "mass over that at the start",
                measured: self.mass() / self.channel.fluid as f64,
                expected: 1.0,
                tolerance: 1e-11,
            },
            Check {
                what: "error of the Poiseuille profile in an open channel",
                measured: poiseuille_error(),
                expected: 0.0,
                tolerance: 1e-8,
            },
        ]
    }
}
