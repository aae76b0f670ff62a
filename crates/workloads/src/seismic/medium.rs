//! The ground, the source and the absorbing layers.

use std::f64::consts::PI;

/// Grid spacing in metres.
pub(super) const SPACING: f64 = 10.0;
/// Speeds of pressure and shear waves in metres per second.
pub(super) const P_SPEED: f64 = 3300.0;
pub(super) const S_SPEED: f64 = P_SPEED / 1.732;
/// Density in kilograms per cubic metre.
pub(super) const DENSITY: f64 = 2800.0;
/// Seconds per time step: 0.91 of the stability limit.
pub(super) const DT: f64 = 1.6e-3;
/// Lame's parameters of the rock, in Pa.
pub(super) const MU: f64 = DENSITY * S_SPEED * S_SPEED;
pub(super) const LAMBDA: f64 = DENSITY * P_SPEED * P_SPEED - 2.0 * MU;
/// Strength of the source.
const FORCE: f64 = 1e7;
/// Cells of an absorbing layer, if the grid is large enough.
const LAYER: usize = 10;
/// Largest reflected share of a wave.
const REFLECTION: f64 = 1e-3;

/// The wavelet that the source adds to the stresses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source {
    /// Main frequency in hertz.
    pub(super) frequency: f64,
}

impl Source {
    /// Returns 7 Hz, or on a small grid a frequency whose P wavelength is two thirds of it.
    pub(super) fn for_grid(side: usize) -> Self {
        Self { frequency: f64::max(7.0, P_SPEED / (SPACING * side as f64 * 2.0 / 3.0)) }
    }

    /// Returns the time of the wavelet's centre, in seconds.
    pub(super) fn middle(self) -> f64 {
        1.2 / self.frequency
    }

    /// Returns the force in newtons per cubic metre: the derivative of a Gaussian.
    pub(super) fn force(self, time: f64) -> f64 {
        let (a, t) = (PI * PI * self.frequency * self.frequency, time - self.middle());
        -FORCE * 2.0 * a * t * (-a * t * t).exp()
    }
}

/// Damping of a layer along one axis: a memory variable decays by `b` and gains `a` of the
/// derivative.
#[derive(Debug)]
pub(super) struct Profile {
    pub(super) a: Vec<f32>,
    pub(super) b: Vec<f32>,
    /// Coefficients half a cell further.
    pub(super) a_half: Vec<f32>,
    pub(super) b_half: Vec<f32>,
    /// Cells of each layer.
    pub(super) layer: usize,
}

impl Profile {
    pub(super) fn new(side: usize, source: Source) -> Self {
        let layer = LAYER.min(side / 5);
        let at = |place: f64| coefficients(place, side, layer, source);
        let (a, b) = (0..side).map(|i| at(i as f64)).unzip();
        let (a_half, b_half) = (0..side).map(|i| at(i as f64 + 0.5)).unzip();
        Self { a, b, a_half, b_half, layer }
    }
}

/// Returns Komatitsch and Martin's damping, quadratic in the depth into the layer.
fn coefficients(place: f64, side: usize, layer: usize, source: Source) -> (f32, f32) {
    let (thickness, end) = (layer as f64, (side - 1) as f64);
    let depth = (thickness - place).max(place - (end - thickness)) / thickness;
    if depth < 0.0 {
        return (0.0, 0.0);
    }
    let strongest = -3.0 * P_SPEED * REFLECTION.ln() / (2.0 * thickness * SPACING);
    let damping = strongest * depth * depth;
    let shift = (PI * source.frequency * (1.0 - depth)).max(0.0);
    let b = (-(damping + shift) * DT).exp();
    let a = if damping > 1e-6 { damping * (b - 1.0) / (damping + shift) } else { 0.0 };
    (a as f32, b as f32)
}
