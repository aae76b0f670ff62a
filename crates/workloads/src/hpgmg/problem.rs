//! The problem: alpha u - div(beta grad u) = f in the unit cube, u = 0 on its surface.
//!
//! The coefficient rises from 1 inside a ball to 10 outside it. The right-hand side belongs to a
//! known solution.

use std::f64::consts::PI;

/// Coefficient of u.
pub(super) const ALPHA: f64 = 1.0;
const MIDDLE: f64 = 5.5;
const SWING: f64 = 4.5;
const STEEPNESS: f64 = 10.0;
const RADIUS: f64 = 0.25;

/// Returns the coefficient of the gradient.
pub(super) fn beta(x: [f64; 3]) -> f64 {
    MIDDLE + SWING * (STEEPNESS * (distance(x) - RADIUS)).tanh()
}

/// Returns the known solution at a point of the unit cube.
pub(super) fn solution(x: [f64; 3]) -> f64 {
    x.map(|x| (2.0 * PI * x).sin()).iter().product()
}

/// Returns the right-hand side of the known solution.
pub(super) fn right_hand_side(x: [f64; 3]) -> f64 {
    let u = solution(x);
    let r = distance(x).max(1e-12);
    let rise = SWING * STEEPNESS / (STEEPNESS * (r - RADIUS)).cosh().powi(2);
    let [s, c] = [x.map(|x| (2.0 * PI * x).sin()), x.map(|x| (2.0 * PI * x).cos())];
    let gradient = [c[0] * s[1] * s[2], s[0] * c[1] * s[2], s[0] * s[1] * c[2]];
    let along: f64 = (0..3).map(|axis| 2.0 * PI * gradient[axis] * rise * (x[axis] - 0.5) / r).sum();
    ALPHA * u - along + beta(x) * 12.0 * PI * PI * u
}

fn distance(x: [f64; 3]) -> f64 {
    x.iter().map(|x| (x - 0.5) * (x - 0.5)).sum::<f64>().sqrt()
}
