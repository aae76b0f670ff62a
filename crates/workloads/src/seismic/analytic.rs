//! Stokes' solution: the wave of a point force in an infinite medium (Aki and Richards, chapter 4).

use std::f64::consts::PI;

use super::medium::{DENSITY, DT, P_SPEED, S_SPEED, SPACING, Source};

/// Returns the time of fastest ground motion at `distance` metres straight ahead of the force, to a
/// tenth of a step.
pub(super) fn arrival(source: Source, distance: f64, until: f64) -> f64 {
    let step = DT / 10.0;
    let speed = |t: f64| (shift(source, distance, t + step) - shift(source, distance, t - step)).abs();
    let times = (0..(until / step) as usize).map(|i| i as f64 * step);
    times.max_by(|a, b| speed(*a).total_cmp(&speed(*b))).unwrap_or(0.0)
}

/// Returns the displacement: a near-field part between pressure and shear wave, and a far-field
/// part.
fn shift(source: Source, distance: f64, time: f64) -> f64 {
    const PARTS: usize = 100;
    let (first, last) = (distance / P_SPEED, distance / S_SPEED);
    let part = (last - first) / PARTS as f64;
    let delays = (0..PARTS).map(|i| first + (i as f64 + 0.5) * part);
    let near: f64 = delays.map(|delay| delay * source.force(time - delay) * part).sum();
    let far = source.force(time - first) / (P_SPEED * P_SPEED * distance);
    let volume = SPACING.powi(3);
    volume * (2.0 * near / distance.powi(3) + far) / (4.0 * PI * DENSITY)
}
