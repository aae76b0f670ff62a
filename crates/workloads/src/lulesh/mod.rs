//! LULESH 2.0: a Sedov blast wave in an ideal gas, on an unstructured mesh of hexahedra that moves
//! with the gas.
//!
//! Follows Karlin, Keasler and Neely, "LULESH 2.0 Updates and Changes" (LLNL-TR-641973), and the
//! Hydrodynamics Challenge Problem (LLNL-TR-490254): nodal forces with hourglass control, monotonic
//! artificial viscosity, an ideal-gas equation of state, and time steps from the Courant and
//! volume-change conditions.
//!
//! Meshes of a published size run to the end and must match the published energy at the origin. The
//! others, mostly too large to run in full, follow a coarse mesh through the blast (see [`guide`])
//! and are checked for symmetry and energy conservation.

mod arrays;
mod element;
mod eos;
mod force;
mod guide;
mod hex;
mod mesh;
#[cfg(test)]
mod tests;
mod time;
mod trace;

use buddy_trace::Application;

use crate::{Allocation, Check, Info, Workload};
use arrays::Elems;
use guide::CoarseGuide;
use mesh::Mesh;
use time::Clock;

/// Entry of `buddy workload list`.
pub(crate) const INFO: Info = Info {
    name: "lulesh",
    paper_name: "FF_Lulesh",
    method: "Sedov blast on unstructured hexahedra (LULESH 2.0)",
    paper_bytes: 1_590_000_000,
    seconds_per_mb: 0.38,
    simulated_seconds_per_mb: 0.15,
    has_host_memory: false,
    footprint: |bytes| footprint(edge_for(bytes)),
    build: |bytes, seed| Box::new(Lulesh::guided(edge_for(bytes), seed)),
};

/// Published runs: elements per side, cycles, energy of the element at the origin.
const PUBLISHED: [(usize, u64, f64); 4] =
    [(5, 72, 7.853665e+03), (10, 231, 2.720531e+04), (30, 932, 2.025075e+05), (45, 1477, 4.234875e+05)];
/// Blast energy for 45 elements per side; scales with the number of elements.
const ENERGY_45: f64 = 3.948_746e+7;

/// The running program. Arrays in threes are the x, y and z (or xi, eta and zeta) components.
struct Lulesh {
    mesh: Mesh,
    clock: Clock,
    /// Set only for a mesh that does not run to the end.
    guide: Option<CoarseGuide>,
    start_energy: f64,
    position: [Vec<f64>; 3],
    velocity: [Vec<f64>; 3],
    acceleration: [Vec<f64>; 3],
    force: [Vec<f64>; 3],
    nodal_mass: Vec<f64>,
    elems: Elems,
    corner_force: [Vec<f64>; 3],
    strain: [Vec<f64>; 3],
    delx: [Vec<f64>; 3],
    delv: [Vec<f64>; 3],
}

/// Returns the bytes of all arrays for a mesh of `edge` elements per side.
fn footprint(edge: usize) -> u64 {
    let (nodes, elements, plane) = ((edge as u64 + 1).pow(3), (edge as u64).pow(3), (edge as u64 + 1).pow(2));
    8 * (13 * nodes + (13 + 24 + 9) * elements) + 4 * (nodes + 1 + 24 * elements + 3 * plane)
}

/// Returns the mesh for a footprint: a published one if near enough, else the largest that fits.
fn edge_for(bytes: u64) -> usize {
    let published = PUBLISHED.iter().map(|run| run.0);
    let near =
        published.into_iter().find(|&edge| (bytes * 55..bytes * 110).contains(&(footprint(edge) * 100)));
    near.unwrap_or_else(|| (5..).take_while(|&edge| footprint(edge) <= bytes).last().unwrap_or(5))
}

impl Lulesh {
    fn new(edge: usize, seed: u64) -> Self {
        let (nodes, elements) = ((edge + 1).pow(3), edge.pow(3));
        let triple = |length| std::array::from_fn(|_| vec![0.0; length]);
        let mut lulesh = Self {
            mesh: Mesh::new(edge, seed),
            clock: Clock::default(),
            guide: None,
            start_energy: 0.0,
            position: mesh::positions(edge),
            velocity: triple(nodes),
            acceleration: triple(nodes),
            force: triple(nodes),
            nodal_mass: vec![0.0; nodes],
            elems: Elems::new(elements),
            corner_force: triple(8 * elements),
            strain: triple(elements),
            delx: triple(elements),
            delv: triple(elements),
        };
        lulesh.share_mass();
        lulesh.deposit_energy();
        lulesh
    }

    /// Creates a mesh, with a coarse guide unless it has a published result.
    fn guided(edge: usize, seed: u64) -> Self {
        let mut lulesh = Self::new(edge, seed);
        lulesh.guide = lulesh.published().is_none().then(|| CoarseGuide::new(edge, seed));
        lulesh
    }

    /// Sets every element's volume and mass, and a node's share of an eighth of each of its
    /// elements.
    fn share_mass(&mut self) {
        for i in 0..self.mesh.elements() {
            let volume = hex::volume(&self.mesh.gather(&self.position, i));
            (self.elems.volo[i], self.elems.mass[i]) = (volume, volume);
        }
        let volo = &self.elems.volo;
        for (node, mass) in self.nodal_mass.iter_mut().enumerate() {
            *mass = self.mesh.corners(node).iter().map(|&corner| volo[corner as usize / 8] / 8.0).sum();
        }
    }

    /// Deposits the blast's energy in the element at the origin.
    fn deposit_energy(&mut self) {
        let energy = ENERGY_45 * (self.mesh.edge as f64 / 45.0).powi(3);
        self.elems.e[0] = energy;
        self.clock.dt = 0.5 * self.elems.volo[0].cbrt() / (2.0 * energy).sqrt();
        self.start_energy = self.total_energy();
    }

    fn published(&self) -> Option<&'static (usize, u64, f64)> {
        PUBLISHED.iter().find(|run| run.0 == self.mesh.edge)
    }

    /// Returns the total internal and kinetic energy.
    fn total_energy(&self) -> f64 {
        let internal: f64 = self.elems.e.iter().zip(&self.elems.mass).map(|(e, mass)| e * mass).sum();
        let kinetic = self.velocity.iter().flat_map(|axis| {
            axis.iter().zip(&self.nodal_mass).map(|(speed, mass)| 0.5 * mass * speed * speed)
        });
        internal + kinetic.sum::<f64>()
    }

    /// Returns the largest relative difference between elements that mirror each other across x =
    /// y.
    fn asymmetry(&self) -> f64 {
        let (edge, e) = (self.mesh.edge, &self.elems.e);
        let pairs = (0..self.mesh.elements()).map(|i| {
            let (x, y, plane) = (i % edge, i / edge % edge, i / edge / edge);
            (e[i], e[y + edge * (x + edge * plane)])
        });
        let largest = e.iter().fold(0.0_f64, |a, &b| a.max(b));
        pairs.fold(0.0, |most, (a, b)| f64::max(most, (a - b).abs() / largest))
    }
}

impl Workload for Lulesh {
    fn steps(&self) -> u64 {
        match self.published() {
            Some(&(_, cycles, _)) => cycles,
            None => guide::CYCLES,
        }
    }

    fn step(&mut self) {
        if let Some(mut guide) = self.guide.take() {
            guide.guide(self);
            self.guide = Some(guide);
        }
        let dt = self.clock.advance();
        self.move_nodes(dt);
        self.deform(dt);
        self.compute_gradients();
        self.compute_viscosity();
        self.apply_material();
        self.constrain_time();
    }

    fn allocations(&self) -> Vec<Allocation<'_>> {
        self.device_arrays()
    }

    fn application(&self) -> Application {
        trace::application(self)
    }

    fn check(&self) -> Vec<Check> {
        let mut checks = vec![Check {
            what: "asymmetry across x = y",
            measured: self.asymmetry(),
            expected: 0.0,
            tolerance: 1e-8,
        }];
        checks.push(match self.published() {
            Some(&(_, _, energy)) => Check {
                what: "final origin energy",
                measured: self.elems.e[0],
                expected: energy,
                tolerance: 1e-6 * energy,
            },
            None => Check {
                what: "energy over that at the last refresh",
                measured: self.total_energy() / self.start_energy,
                expected: 1.0,
                tolerance: 0.02,
            },
        });
        checks
    }
}
