//! Seismic waves from a point force, with absorbing layers at the edges.
//!
//! Follows SEISMIC_CPML's 3-D isotropic program (Komatitsch and Martin, "An unsplit convolutional
//! perfectly matched layer improved at grazing incidence", Geophysics 72, 2007), which SPEC ACCEL
//! took as 355.seismic: velocity and stress on a staggered grid, second order, single precision,
//! and memory variables that cover the whole grid though only the layers use them. Everything is
//! zero until the wave arrives.

mod analytic;
mod medium;
#[cfg(test)]
mod tests;
mod trace;
mod update;

use buddy_trace::Application;
use rayon::prelude::*;

use crate::{Allocation, Check, Info, Workload};
use medium::{DENSITY, DT, LAMBDA, MU, P_SPEED, Profile, SPACING, Source};
use update::{SLOPES, VX, VY};

/// Entry of `buddy workload list`.
pub(crate) const INFO: Info = Info {
    name: "seismic",
    paper_name: "355.seismic",
    method: "3-D elastic waves on a staggered grid with absorbing layers",
    paper_bytes: 2_830_000_000,
    seconds_per_mb: 0.13,
    simulated_seconds_per_mb: 0.2,
    has_host_memory: false,
    footprint: |bytes| footprint(side_for(bytes)),
    build: |bytes, _seed| Box::new(Seismic::new(side_for(bytes))),
};

/// Names of the arrays: three velocities, then six stresses.
const FIELDS: [&str; 9] =
    ["vx", "vy", "vz", "sigmaxx", "sigmayy", "sigmazz", "sigmaxy", "sigmaxz", "sigmayz"];
/// Energy samples per run.
const ENERGY_SAMPLES: u64 = 20;

struct Seismic {
    side: usize,
    source: Source,
    /// Velocities and stresses, named by [`FIELDS`].
    fields: [Vec<f32>; 9],
    /// Memory variables of the velocity derivatives, then of the stress derivatives.
    memory: [Vec<f32>; 18],
    profile: Profile,
    steps_done: u64,
    /// Speed at the receiver after every step, along the force.
    trace: Vec<f64>,
    /// Samples of time and energy between the layers.
    energy: Vec<(f64, f64)>,
}

/// Returns the bytes of all arrays.
fn footprint(side: usize) -> u64 {
    4 * (27 * side.pow(3) + 4 * side) as u64
}

/// Returns the side of the largest cube that fits.
fn side_for(bytes: u64) -> usize {
    (16..).take_while(|&side| footprint(side) <= bytes).last().unwrap_or(16)
}

impl Seismic {
    fn new(side: usize) -> Self {
        let source = Source::for_grid(side);
        Self {
            side,
            source,
            fields: std::array::from_fn(|_| vec![0.0; side.pow(3)]),
            memory: std::array::from_fn(|_| vec![0.0; side.pow(3)]),
            profile: Profile::new(side, source),
            steps_done: 0,
            trace: Vec::new(),
            energy: Vec::new(),
        }
    }

    /// Returns the names of the memory variables, in order.
    fn memory_names(&self) -> [String; 18] {
        let [velocities, stresses] = &SLOPES;
        std::array::from_fn(|slope| {
            let slope = velocities.iter().chain(stresses).nth(slope).expect("nine slopes of each");
            format!("memory_d{}_d{}", FIELDS[slope.field], ["x", "y", "z"][slope.axis])
        })
    }

    fn time(&self) -> f64 {
        self.steps_done as f64 * DT
    }

    fn at(&self, [i, j, k]: [usize; 3]) -> usize {
        i + self.side * (j + self.side * k)
    }

    fn source_position(&self) -> [usize; 3] {
        [self.side / 2, self.side * 2 / 3, self.side / 2]
    }

    /// Returns the cells from the source to the receiver along x, and back along y: straight ahead
    /// of the force.
    fn receiver_offset(&self) -> usize {
        self.side / 4
    }

    fn push_source(&mut self) {
        let push = self.source.force(self.time()) * DT / DENSITY * std::f64::consts::FRAC_1_SQRT_2;
        let place = self.at(self.source_position());
        self.fields[VX][place] += push as f32;
        self.fields[VY][place] -= push as f32;
    }

    fn listen(&mut self) {
        let ([i, j, k], offset) = (self.source_position(), self.receiver_offset());
        let place = self.at([i + offset, j - offset, k]);
        self.trace.push(f64::from(self.fields[VX][place] - self.fields[VY][place]));
    }

    /// Returns the kinetic and elastic energy between the layers, in joules; planes are summed in
    /// order.
    fn total_energy(&self) -> f64 {
        let inside = self.profile.layer..self.side - self.profile.layer;
        let planes: Vec<f64> = inside
            .clone()
            .into_par_iter()
            .map(|k| {
                let rows = inside.clone().map(|j| self.at([0, j, k]));
                rows.flat_map(|row| inside.clone().map(move |i| row + i))
                    .map(|at| self.energy_density(at))
                    .sum()
            })
            .collect();
        planes.iter().sum::<f64>() * SPACING.powi(3)
    }

    fn energy_density(&self, at: usize) -> f64 {
        let [vx, vy, vz, xx, yy, zz, xy, xz, yz] = self.fields.each_ref().map(|field| f64::from(field[at]));
        let trace = xx + yy + zz;
        let squares = xx * xx + yy * yy + zz * zz + 2.0 * (xy * xy + xz * xz + yz * yz);
        let elastic = (squares - LAMBDA / (3.0 * LAMBDA + 2.0 * MU) * trace * trace) / (4.0 * MU);
        0.5 * DENSITY * (vx * vx + vy * vy + vz * vz) + elastic
    }

    /// Returns the time at which the receiver moved fastest.
    fn arrival(&self) -> f64 {
        let fastest = self.trace.iter().enumerate().max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()));
        fastest.map_or(f64::NAN, |(step, _)| (step + 1) as f64 * DT)
    }

    /// Returns the largest energy growth between samples after the source has ended, and the final
    /// energy as a share of the source's. Growth counts while a hundredth is left: after that,
    /// residual reflections dominate.
    fn energy_after_source(&self) -> (f64, f64) {
        let after: Vec<f64> = self
            .energy
            .iter()
            .filter(|look| look.0 > 2.0 * self.source.middle())
            .map(|look| look.1)
            .collect();
        let much = after.windows(2).filter(|pair| pair[0] > 0.01 * after[0]);
        let growth = much.map(|pair| pair[1] / pair[0]).fold(0.0, f64::max);
        (growth, after.last().unwrap_or(&f64::NAN) / after[0])
    }
}

impl Workload for Seismic {
    /// Returns the steps until the wavelet has ended and shear waves have crossed more than half of
    /// the grid.
    fn steps(&self) -> u64 {
        ((2.0 * self.source.middle() + 1.1 * self.side as f64 * SPACING / P_SPEED) / DT) as u64
    }

    fn step(&mut self) {
        self.update_stresses();
        self.update_velocities();
        self.push_source();
        self.steps_done += 1;
        self.listen();
        if self.steps_done.is_multiple_of(self.steps() / ENERGY_SAMPLES) {
            self.energy.push((self.time(), self.total_energy()));
        }
    }

    fn allocations(&self) -> Vec<Allocation<'_>> {
        let fields = FIELDS.iter().zip(&self.fields);
        let mut list: Vec<_> =
            fields.map(|(name, v)| Allocation::f32(*name, "seismic:main_arrays", v)).collect();
        for (name, values) in self.memory_names().into_iter().zip(&self.memory) {
            list.push(Allocation::f32(name, "seismic:memory_variables", values));
        }
        let p = &self.profile;
        for (name, values) in [("a", &p.a), ("b", &p.b), ("a_half", &p.a_half), ("b_half", &p.b_half)] {
            list.push(Allocation::f32(name, "seismic:damping_profiles", values));
        }
        list
    }

    fn application(&self) -> Application {
        trace::application(self)
    }

    fn check(&self) -> Vec<Check> {
        let distance = self.receiver_offset() as f64 * SPACING * std::f64::consts::SQRT_2;
        let (growth, left) = self.energy_after_source();
        vec![
            Check {
                what: "arrival of the pressure wave in seconds",
                measured: self.arrival(),
                expected: analytic::arrival(self.source, distance, self.time()),
                tolerance: 3.0 * DT,
            },
            Check {
                what: "largest growth of energy after the source",
                measured: growth.max(1.0),
                expected: 1.0,
                tolerance: 1e-3,
            },
            Check { what: "share of energy left at the end", measured: left, expected: 0.0, tolerance: 0.25 },
        ]
    }
}
