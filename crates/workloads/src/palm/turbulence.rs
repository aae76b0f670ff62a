//! Subgrid turbulence: Deardorff's closure by eddy energy.

use super::{
    E, PT,
    tendency::{Air, HEAT},
};

/// Gravity in metres per second squared.
pub(super) const GRAVITY: f64 = 9.81;
/// Initial potential temperature in kelvin.
pub(super) const REFERENCE: f64 = 300.0;
/// Least eddy energy in m2/s2.
pub(super) const LEAST_ENERGY: f64 = 1e-8;

/// Returns the eddy diffusivities of momentum and heat, in m2/s.
pub(super) fn diffusivities(air: &Air, at: usize) -> (f64, f64) {
    let length = mixing_length(air, at);
    let km = 0.1 * length * air.fields[E][at].sqrt();
    (km, (1.0 + 2.0 * length / air.cell) * km)
}

/// Returns the mixing length: a cell, or less under stable stratification.
fn mixing_length(air: &Air, at: usize) -> f64 {
    let (cell, e) = (air.cell, air.fields[E][at]);
    let stability = GRAVITY / REFERENCE * warming(air, at);
    if stability > 1e-12 { cell.min(0.76 * (e / stability).sqrt()).max(1e-3 * cell) } else { cell }
}

/// Returns the vertical gradient of potential temperature per metre.
fn warming(air: &Air, at: usize) -> f64 {
    let (plane, pt) = (air.grid.plane(), &air.fields[PT]);
    0.5 * (pt[at + plane] - pt[at - plane]) / air.cell
}

/// Returns the production by shear and buoyancy minus dissipation, per second.
pub(super) fn production(air: &Air, at: usize, ground: bool) -> f64 {
    let (cell, e) = (air.cell, air.fields[E][at]);
    let heat_flux = if ground { HEAT } else { -air.kh[at] * warming(air, at) };
    let length = mixing_length(air, at);
    let loss = (0.19 + 0.74 * length / cell) * e * e.sqrt() / length;
    air.km[at] * deformation(air, at) + GRAVITY / REFERENCE * heat_flux - loss
}

/// Returns the squared deformation rate at the centre of a cell.
fn deformation(air: &Air, at: usize) -> f64 {
    let strides = air.strides;
    let mut sum = 0.0;
    for (axis, stride) in strides.into_iter().enumerate() {
        let stretch = air.fields[axis][at + stride] - air.fields[axis][at];
        sum += 2.0 * stretch * stretch;
    }
    for (a, b) in [(0, 1), (0, 2), (1, 2)] {
        let edges = [at, at + strides[a], at + strides[b], at + strides[a] + strides[b]];
        sum += 0.25 * edges.map(|edge| air.shear(a, b, edge).powi(2)).iter().sum::<f64>();
    }
    sum / air.cell.powi(2)
}
