//! Element deformation, and the artificial viscosity that spreads shocks.

use rayon::prelude::*;

use super::{
    Lulesh,
    hex::{Hex, Vec3, add, characteristic_length, cross, dot, scale, shape_derivatives, sub, volume},
    mesh::{Beyond, Mesh},
};

/// Keeps divisions by a vanishing gradient finite.
const TINY: f64 = 1e-36;
/// Linear and quadratic strength of the viscosity.
const LINEAR: f64 = 0.5;
const QUADRATIC: f64 = 2.0 / 3.0;
/// Slopes steeper than this many times their neighbour's are limited.
const LIMITER: f64 = 2.0;

impl Lulesh {
    /// Computes new volumes and strain rates from the nodes' new positions and velocities.
    pub(super) fn deform(&mut self, dt: f64) {
        let (mesh, position, velocity) = (&self.mesh, &self.position, &self.velocity);
        let [dxx, dyy, dzz] = &mut self.strain;
        let elems = &mut self.elems;
        let (v, volo) = (&elems.v, &elems.volo);
        let out = (&mut elems.vnew, &mut elems.delv, &mut elems.arealg, &mut elems.vdov, dxx, dyy, dzz);
        out.into_par_iter().enumerate().with_min_len(256).for_each(
            |(i, (vnew, delv, arealg, vdov, dxx, dyy, dzz))| {
                let (x, speed) = (mesh.gather(position, i), mesh.gather(velocity, i));
                let now = volume(&x);
                *vnew = now / volo[i];
                *delv = *vnew - v[i];
                *arealg = characteristic_length(&x, now);
                let rates = strain_rates(&x, &speed, dt);
                *vdov = rates[0] + rates[1] + rates[2];
                [*dxx, *dyy, *dzz] = rates.map(|rate| rate - *vdov / 3.0);
            },
        );
    }

    /// Computes the gradients of position and velocity along the three directions of each element.
    pub(super) fn compute_gradients(&mut self) {
        let (mesh, position, velocity) = (&self.mesh, &self.position, &self.velocity);
        let (vnew, volo) = (&self.elems.vnew, &self.elems.volo);
        let [dx0, dx1, dx2] = &mut self.delx;
        let [dv0, dv1, dv2] = &mut self.delv;
        (dx0, dx1, dx2, dv0, dv1, dv2).into_par_iter().enumerate().with_min_len(256).for_each(
            |(i, (dx0, dx1, dx2, dv0, dv1, dv2))| {
                let x = mesh.gather(position, i);
                let speed = mesh.gather(velocity, i);
                let (delx, delv) = gradients(&x, &speed, volo[i] * vnew[i]);
                [*dx0, *dx1, *dx2] = delx;
                [*dv0, *dv1, *dv2] = delv;
            },
        );
    }

    /// Computes the linear and quadratic parts of the monotonic artificial viscosity.
    pub(super) fn compute_viscosity(&mut self) {
        let (mesh, delx, delv) = (&self.mesh, &self.delx, &self.delv);
        let (mass, volo) = (&self.elems.mass, &self.elems.volo);
        let (vnew, vdov) = (&self.elems.vnew, &self.elems.vdov);
        let out = (&mut self.elems.ql, &mut self.elems.qq);
        out.into_par_iter().enumerate().with_min_len(256).for_each(|(i, (ql, qq))| {
            (*ql, *qq) = (0.0, 0.0);
            if vdov[i] > 0.0 {
                return;
            }
            let density = mass[i] / (volo[i] * vnew[i]);
            for axis in 0..3 {
                let phi = limited_slope(mesh, &delv[axis], i, axis);
                let closing = (delv[axis][i] * delx[axis][i]).min(0.0);
                *ql -= LINEAR * density * closing * (1.0 - phi);
                *qq += QUADRATIC * density * closing * closing * (1.0 - phi * phi);
            }
        });
    }
}

/// Returns the strain rates along x, y and z, half a step back in time.
fn strain_rates(x: &Hex, speed: &Hex, dt: f64) -> Vec3 {
    let middle: Hex = std::array::from_fn(|node| sub(x[node], scale(speed[node], 0.5 * dt)));
    let (slopes, volume) = shape_derivatives(&middle);
    let across = [[0, 6], [1, 7], [2, 4], [3, 5]].map(|[near, far]| sub(speed[near], speed[far]));
    std::array::from_fn(|axis| {
        (0..4).map(|pair| slopes[pair][axis] * across[pair][axis]).sum::<f64>() / volume
    })
}

/// Returns the width of an element, and the velocity difference across it, along xi, eta and zeta.
fn gradients(x: &Hex, speed: &Hex, volume: f64) -> (Vec3, Vec3) {
    let sides = [[[1, 2, 6, 5], [0, 3, 7, 4]], [[3, 2, 6, 7], [0, 1, 5, 4]], [[4, 5, 6, 7], [0, 1, 2, 3]]];
    let middle = |values: &Hex, face: [usize; 4]| {
        face.iter().fold([0.0; 3], |sum, &node| add(sum, scale(values[node], 0.25)))
    };
    let across = |values: &Hex| sides.map(|[far, near]| sub(middle(values, far), middle(values, near)));
    let (edges, jumps) = (across(x), across(speed));
    let areas = [cross(edges[1], edges[2]), cross(edges[2], edges[0]), cross(edges[0], edges[1])];
    let delx = areas.map(|area| volume / (dot(area, area) + TINY).sqrt());
    let delv = std::array::from_fn(|axis| dot(areas[axis], jumps[axis]) / (volume + TINY));
    (delx, delv)
}

/// Returns the slope limiter along one direction: 1 is smooth and needs no viscosity, 0 is a shock.
fn limited_slope(mesh: &Mesh, delv: &[f64], element: usize, axis: usize) -> f64 {
    let own = delv[element];
    let [below, above] = [2 * axis, 2 * axis + 1].map(|face| {
        let next = match mesh.beyond(element, face) {
            Beyond::Element(next) => delv[next],
            Beyond::Mirror => own,
            Beyond::Free => 0.0,
        };
        next / (own + TINY)
    });
    (0.5 * (below + above)).min(LIMITER * below).min(LIMITER * above).clamp(0.0, 1.0)
}
