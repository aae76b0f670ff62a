//! Nodal forces and motion.

use rayon::prelude::*;

use super::{
    Lulesh,
    hex::{Hex, add, dot, node_normals, scale, volume_derivatives},
};

/// Strength of the hourglass control.
const HOURGLASS: f64 = 3.0;
/// Speeds below this count as zero.
const SPEED_CUT: f64 = 1e-7;
/// Hourglass modes: the four zero-energy deformations of a hexahedron, which the stress does not
/// resist.
const MODES: [[f64; 8]; 4] = [
    [1.0, 1.0, -1.0, -1.0, -1.0, -1.0, 1.0, 1.0],
    [1.0, -1.0, -1.0, 1.0, -1.0, 1.0, 1.0, -1.0],
    [1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0],
    [-1.0, 1.0, -1.0, 1.0, 1.0, -1.0, 1.0, -1.0],
];

impl Lulesh {
    /// Computes forces, accelerations, velocities and positions of the nodes for one time step.
    pub(super) fn move_nodes(&mut self, dt: f64) {
        self.push_corners();
        self.accelerate_nodes();
        for axis in 0..3 {
            let motion = (&mut self.velocity[axis], &mut self.position[axis], &self.acceleration[axis]);
            motion.into_par_iter().with_min_len(1024).for_each(|(v, x, a)| {
                let speed = *v + a * dt;
                *v = if speed.abs() < SPEED_CUT { 0.0 } else { speed };
                *x += *v * dt;
            });
        }
    }

    /// Computes each element's force on its own corners, from pressure and hourglass control.
    fn push_corners(&mut self) {
        let (mesh, elems) = (&self.mesh, &self.elems);
        let (position, velocity) = (&self.position, &self.velocity);
        let [fx, fy, fz] = &mut self.corner_force;
        let corners = (fx.par_chunks_exact_mut(8), fy.par_chunks_exact_mut(8), fz.par_chunks_exact_mut(8));
        corners.into_par_iter().enumerate().with_min_len(256).for_each(|(i, (fx, fy, fz))| {
            let x = mesh.gather(position, i);
            let pressure = elems.p[i] + elems.q[i];
            let volume = elems.volo[i] * elems.v[i];
            let damping = -HOURGLASS * 0.01 * elems.ss[i] * elems.mass[i] / volume.cbrt();
            let hourglass = hourglass_force(&x, &mesh.gather(velocity, i), volume);
            for (corner, normal) in node_normals(&x).into_iter().enumerate() {
                let force = add(scale(normal, pressure), scale(hourglass[corner], damping));
                [fx[corner], fy[corner], fz[corner]] = force;
            }
        });
    }

    /// Sums the corners of each node in a fixed order, independent of threads.
    fn accelerate_nodes(&mut self) {
        let (mesh, mass) = (&self.mesh, &self.nodal_mass);
        for axis in 0..3 {
            let from = &self.corner_force[axis];
            let nodes = (&mut self.force[axis], &mut self.acceleration[axis]);
            nodes.into_par_iter().enumerate().with_min_len(1024).for_each(|(node, (f, a))| {
                *f = mesh.corners(node).iter().map(|&corner| from[corner as usize]).sum();
                *a = *f / mass[node];
            });
            for &node in &mesh.symmetry[axis] {
                self.acceleration[axis][node as usize] = 0.0;
            }
        }
    }
}

/// Returns Flanagan and Belytschko's hourglass resistance for unit damping.
fn hourglass_force(x: &Hex, velocity: &Hex, volume: f64) -> Hex {
    let slopes = volume_derivatives(x);
    let mut force = [[0.0; 3]; 8];
    for mode in MODES {
        let shape = weigh(&mode, x);
        let gamma: [f64; 8] = std::array::from_fn(|node| mode[node] - dot(slopes[node], shape) / volume);
        let rate = weigh(&gamma, velocity);
        for (force, gamma) in force.iter_mut().zip(gamma) {
            *force = add(*force, scale(rate, gamma));
        }
    }
    force
}

fn weigh(weights: &[f64; 8], values: &Hex) -> [f64; 3] {
    weights.iter().zip(values).fold([0.0; 3], |sum, (&weight, &value)| add(sum, scale(value, weight)))
}
