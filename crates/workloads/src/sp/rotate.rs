//! Changes of variables between the sweeps: from the state to the characteristic waves of x, y and
//! z in turn, and back.

use std::f64::consts::FRAC_1_SQRT_2;

use crate::flow::{C2, Flow, interior};

/// From the state to the waves of x.
pub(super) fn to_waves(flow: &mut Flow, speed: &[f64]) {
    let Flow { rhs, velocity: [us, vs, ws], rho_i, qs, .. } = flow;
    interior(rhs, |cell, [r1, r2, r3, r4, r5]| {
        let (u, v, w, sound, rho_i) = (us[cell], vs[cell], ws[cell], speed[cell], rho_i[cell]);
        let heat = C2 / (sound * sound) * (qs[cell] * r1 - u * r2 - v * r3 - w * r4 + r5);
        let push = FRAC_1_SQRT_2 * rho_i * (u * r1 - r2);
        let swell = FRAC_1_SQRT_2 * rho_i * sound * heat;
        [r1 - heat, -rho_i * (w * r1 - r4), rho_i * (v * r1 - r3), swell - push, swell + push]
    });
}

/// From the waves of x to those of y.
pub(super) fn x_to_y(flow: &mut Flow) {
    interior(&mut flow.rhs, |_, [r1, r2, r3, r4, r5]| {
        let (turned, mean) = (FRAC_1_SQRT_2 * r3, 0.5 * (r4 + r5));
        [-r2, r1, FRAC_1_SQRT_2 * (r4 - r5), mean - turned, mean + turned]
    });
}

/// From the waves of y to those of z.
pub(super) fn y_to_z(flow: &mut Flow) {
    interior(&mut flow.rhs, |_, [r1, r2, r3, r4, r5]| {
        let (turned, mean) = (FRAC_1_SQRT_2 * r1, 0.5 * (r4 + r5));
        [FRAC_1_SQRT_2 * (r4 - r5), -r3, r2, mean - turned, mean + turned]
    });
}

/// From the waves of z to the state.
pub(super) fn from_waves(flow: &mut Flow, speed: &[f64]) {
    let Flow { u, rhs, velocity: [us, vs, ws], qs, .. } = flow;
    interior(rhs, |cell, [r1, r2, r3, r4, r5]| {
        let (x, y, z, sound) = (us[cell], vs[cell], ws[cell], speed[cell]);
        let [density] = u.get(cell);
        let swell = FRAC_1_SQRT_2 * density / sound * (r4 + r5);
        let push = FRAC_1_SQRT_2 * density * (r4 - r5);
        let mass = r3 + swell;
        let energy = density * (y * r1 - x * r2) + qs[cell] * mass + sound * sound * swell / C2 + z * push;
        [mass, x * mass - density * r2, density * r1 + y * mass, z * mass + push, energy]
    });
}
