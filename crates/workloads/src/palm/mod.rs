//! PALM: large-eddy simulation of air over heated ground.
//!
//! Follows Raasch and Schroeter, "PALM - a large-eddy simulation model performing on massively
//! parallel computers" (Meteorol. Z. 10, 2001), and the case that SPEC ACCEL runs as 351.palm: air
//! at rest, heated from below with about 100 watts per square metre, until it overturns.
//! Incompressible Boussinesq equations on a staggered grid, second order in space, three
//! Runge-Kutta stages in time with a pressure solve after each, and Deardorff's closure for eddies
//! smaller than a cell.

mod grid;
mod hartley;
mod pressure;
mod tendency;
#[cfg(test)]
mod tests;
mod trace;
mod turbulence;

use buddy_trace::Application;
use rayon::prelude::*;

use crate::{Allocation, Check, Info, Workload, random::Random};
use grid::Grid;
use pressure::Waves;
use tendency::{Air, HEAT};
use turbulence::{LEAST_ENERGY, REFERENCE};

/// Entry of `buddy workload list`.
pub(crate) const INFO: Info = Info {
    name: "palm",
    paper_name: "351.palm",
    method: "large-eddy simulation of air over heated ground on a staggered grid",
    paper_bytes: 2_890_000_000,
    seconds_per_mb: 0.24,
    simulated_seconds_per_mb: 0.13,
    has_host_memory: false,
    footprint: |bytes| footprint(grid_for(bytes)),
    build: |bytes, seed| Box::new(Palm::new(grid_for(bytes), seed)),
};

/// Fields of a state: winds along x, y and z, potential temperature, subgrid energy.
const NAMES: [&str; 5] = ["u", "v", "w", "pt", "e"];
const V: usize = 1;
const W: usize = 2;
const PT: usize = 3;
const E: usize = 4;

/// Time steps of a run.
const STEPS: u64 = 40;
/// Longest time step in seconds.
const LONGEST_STEP: f64 = 20.0;
/// Weights of the last stage's change and of the stage's own change (Williamson).
const STAGES: [[f64; 2]; 3] = [[0.0, 1.0 / 3.0], [-5.0 / 9.0, 15.0 / 16.0], [-153.0 / 128.0, 8.0 / 15.0]];
/// Share of the time step that each stage advances.
const ADVANCES: [f64; 3] = [1.0 / 3.0, 5.0 / 12.0, 1.0 / 4.0];
/// Initial perturbation speed in metres per second.
const DISTURBANCE: f64 = 0.25;

struct Palm {
    grid: Grid,
    waves: Waves,
    /// Two states that alternate, as pointers do in the original.
    state: [[Vec<f64>; 5]; 2],
    current: usize,
    /// Changes of the last stage.
    change: [Vec<f64>; 5],
    tendency: Vec<f64>,
    km: Vec<f64>,
    kh: Vec<f64>,
    p: Vec<f64>,
    /// Divergence, its transform, and finally the pressure, without ghosts.
    divergence: Vec<f64>,
    pivots: Vec<f64>,
    time: f64,
    start_heat: f64,
}

/// Returns the bytes of all arrays.
fn footprint(grid: Grid) -> u64 {
    8 * (19 * grid.len() + 2 * grid.cells()) as u64
}

/// Returns a grid about as high as wide: powers of two along x and y for the transforms, any number
/// of levels.
fn grid_for(bytes: u64) -> Grid {
    let sides = (3..12).flat_map(|power| [(1 << power, 1 << power), (2 << power, 1 << power)]);
    let fitted = sides.map(|(nx, ny)| {
        let levels = (8..).take_while(|&nz| footprint(Grid { nx, ny, nz }) <= bytes).last().unwrap_or(8);
        Grid { nx, ny, nz: levels }
    });
    let shape = |grid: &Grid| ((grid.nz * grid.nz) as f64 / (grid.nx * grid.ny) as f64).ln().abs();
    let fits = fitted.filter(|grid| footprint(*grid) <= bytes);
    fits.min_by(|a, b| shape(a).total_cmp(&shape(b))).unwrap_or(Grid { nx: 16, ny: 8, nz: 8 })
}

impl Palm {
    fn new(grid: Grid, seed: u64) -> Self {
        let field = || vec![0.0; grid.len()];
        let mut palm = Self {
            grid,
            waves: Waves::new(grid),
            state: std::array::from_fn(|_| std::array::from_fn(|_| field())),
            current: 0,
            change: std::array::from_fn(|_| field()),
            tendency: field(),
            km: field(),
            kh: field(),
            p: field(),
            divergence: vec![0.0; grid.cells()],
            pivots: pressure::pivots(grid),
            time: 0.0,
            start_heat: 0.0,
        };
        palm.start(seed);
        palm
    }

    /// Sets the initial state: air at rest, neutral below and stable above, perturbed near the
    /// ground.
    fn start(&mut self, seed: u64) {
        let (grid, mut random) = (self.grid, Random::new(seed));
        for k in 1..=grid.nz {
            let height = (k as f64 - 0.5) * grid.spacing();
            for at in grid.level().map(|at| at + k * grid.plane()) {
                let [u, v, _, pt, e] = &mut self.state[0];
                pt[at] = REFERENCE + 0.01 * (height - 1000.0).max(0.0);
                e[at] = LEAST_ENERGY;
                if height < 1000.0 {
                    u[at] = DISTURBANCE * (2.0 * random.unit() - 1.0);
                    v[at] = DISTURBANCE * (2.0 * random.unit() - 1.0);
                }
            }
        }
        self.fill_ghosts();
        self.project(1.0);
        self.start_heat = self.mean_temperature();
    }

    fn fill_ghosts(&mut self) {
        for (field, values) in self.state[self.current].iter_mut().enumerate() {
            self.grid.wrap(values);
            // Vertical wind stays zero on the ground and at the top.
            if field != W {
                self.grid.continue_ends(values);
            }
        }
    }

    /// One Runge-Kutta stage over `dt` seconds.
    fn advance(&mut self, dt: f64, [keep, apply]: [f64; 2]) {
        let grid = self.grid;
        self.compute_diffusivities();
        let [first, second] = &mut self.state;
        let (now, next) = if self.current == 0 { (&*first, second) } else { (&*second, first) };
        let air = Air::new(grid, now, &self.km, &self.kh);
        for field in 0..5 {
            air.compute_tendency(field, &mut self.tendency);
            let tendency = &self.tendency;
            let change = &mut self.change[field];
            change.par_iter_mut().zip(tendency).with_min_len(4096).for_each(|(change, tendency)| {
                *change = dt * tendency + keep * *change;
            });
            let change = &*change;
            let least = if field == E { LEAST_ENERGY } else { f64::NEG_INFINITY };
            let lowest = if field == W { 2 } else { 1 };
            grid.fill(&mut next[field], lowest, |at| (now[field][at] + apply * change[at]).max(least));
        }
        self.current = 1 - self.current;
        self.fill_ghosts();
    }

    fn compute_diffusivities(&mut self) {
        let grid = self.grid;
        let air = Air::new(grid, &self.state[self.current], &[], &[]);
        grid.fill_both([&mut self.km, &mut self.kh], |at| turbulence::diffusivities(&air, at));
        for k in [&mut self.km, &mut self.kh] {
            grid.wrap(k);
            grid.continue_ends(k);
        }
    }

    /// Returns the time step allowed by advection and diffusion.
    fn time_step(&self) -> f64 {
        let cell = self.grid.spacing();
        let mixing = self.grid.largest(|at| self.kh[at]).max(1e-12);
        LONGEST_STEP.min(0.5 * cell / self.fastest()).min(0.1 * cell * cell / mixing)
    }

    /// Returns the largest sum of a cell's wind magnitudes, in metres per second.
    fn fastest(&self) -> f64 {
        let winds = &self.state[self.current][..3];
        self.grid.largest(|at| winds.iter().map(|wind| wind[at].abs()).sum())
    }

    fn mean_temperature(&self) -> f64 {
        self.grid.level_means(&self.state[self.current][PT]).iter().sum::<f64>() / self.grid.nz as f64
    }

    /// Returns the largest net flow of air through a level, as a share of the fastest wind.
    fn leak(&self) -> f64 {
        let means = self.grid.level_means(&self.state[self.current][W]);
        means.iter().fold(0.0, |most: f64, mean| most.max(mean.abs())) / self.fastest()
    }
}

impl Workload for Palm {
    fn steps(&self) -> u64 {
        STEPS
    }

    fn step(&mut self) {
        let dt = self.time_step();
        for (stage, part) in STAGES.into_iter().zip(ADVANCES) {
            self.advance(dt, stage);
            self.project(dt * part);
        }
        self.time += dt;
    }

    fn allocations(&self) -> Vec<Allocation<'_>> {
        const INIT: &str = "init_3d_model.f90:init_3d_model";
        const SOLVER: &str = "poisfft_mod.f90:poisfft_init";
        let turns = self.state.iter().chain([&self.change]).enumerate();
        let mut list: Vec<_> = turns
            .flat_map(|(turn, fields)| {
                let name = move |name: &str| format!("{name}_{}", turn + 1);
                NAMES
                    .iter()
                    .zip(fields)
                    .map(move |(field, values)| Allocation::f64(name(field), INIT, values))
            })
            .collect();
        for (name, values) in [("tend", &self.tendency), ("km", &self.km), ("kh", &self.kh), ("p", &self.p)] {
            list.push(Allocation::f64(name, INIT, values));
        }
        list.push(Allocation::f64("d", INIT, &self.divergence));
        list.push(Allocation::f64("tric", SOLVER, &self.pivots));
        list
    }

    fn application(&self) -> Application {
        trace::application(self)
    }

    fn check(&self) -> Vec<Check> {
        let height = self.grid.spacing() * self.grid.nz as f64;
        let warming = (self.mean_temperature() - self.start_heat) / (HEAT * self.time / height);
        vec![
            Check {
                what: "divergence after the pressure solve",
                measured: self.largest_divergence(),
                expected: 0.0,
                tolerance: 1e-10,
            },
            Check {
                what: "net flow through a level",
                measured: self.leak(),
                expected: 0.0,
                tolerance: 1e-12,
            },
            Check {
                what: "warming over heat from the ground",
                measured: warming,
                expected: 1.0,
                tolerance: 1e-7,
            },
        ]
    }
}
