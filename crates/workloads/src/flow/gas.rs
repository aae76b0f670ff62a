//! The gas: quantities derived from a cell's conserved state, and the constants of the NAS flow
//! problem.

/// Ratio of specific heats, and that minus one.
pub(crate) const C1: f64 = 1.4;
pub(crate) const C2: f64 = 0.4;
/// Viscosity, the product of NAS's constants c3 and c4.
pub(crate) const C3C4: f64 = 0.1;
/// Heat conduction relative to viscosity: c1 c5, and times c3 c4.
pub(crate) const C1C5: f64 = C1 * 1.4;
pub(crate) const C1345: f64 = C1C5 * C3C4;
/// Extra viscosity along the direction of motion.
pub(crate) const CON43: f64 = 4.0 / 3.0;
/// Strength of the fourth-difference smoothing.
pub(crate) const DSSP: f64 = 0.25;
/// Second-difference smoothing in each direction; all five equations use the same.
pub(crate) const SMOOTHING: [f64; 3] = [0.75, 0.75, 1.0];

/// Conserved state per volume: density, momentum in three directions, energy.
pub(crate) type State = [f64; 5];

/// A cell's state and derived quantities.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gas {
    pub(crate) u: State,
    pub(crate) velocity: [f64; 3],
    /// The reciprocal of the density.
    pub(crate) rho_i: f64,
    /// Kinetic energy per volume.
    pub(crate) square: f64,
    /// Kinetic energy per mass.
    pub(crate) qs: f64,
}

impl Gas {
    #[inline]
    pub(crate) fn of(u: State) -> Self {
        let rho_i = 1.0 / u[0];
        let square = 0.5 * (u[1] * u[1] + u[2] * u[2] + u[3] * u[3]) * rho_i;
        Self { u, velocity: [u[1] * rho_i, u[2] * rho_i, u[3] * rho_i], rho_i, square, qs: square * rho_i }
    }

    /// Returns the speed of sound.
    #[inline]
    pub(crate) fn sound(&self) -> f64 {
        (C1 * C2 * self.rho_i * (self.u[4] - self.square)).sqrt()
    }
}

/// Polynomial coefficients of each component of the exact state: a constant, then the first to
/// fourth powers of x, y and z.
const EXACT: [[f64; 13]; 5] = [
    [2.0, 0.0, 0.0, 4.0, 5.0, 3.0, 0.5, 0.02, 0.01, 0.03, 0.5, 0.4, 0.3],
    [1.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 0.01, 0.03, 0.02, 0.4, 0.3, 0.5],
    [2.0, 2.0, 0.0, 0.0, 0.0, 2.0, 3.0, 0.04, 0.03, 0.05, 0.3, 0.5, 0.4],
    [2.0, 2.0, 0.0, 0.0, 0.0, 2.0, 3.0, 0.03, 0.05, 0.04, 0.2, 0.1, 0.3],
    [5.0, 4.0, 3.0, 2.0, 0.1, 0.4, 0.3, 0.05, 0.04, 0.03, 0.1, 0.3, 0.2],
];

/// Returns the steady state at a point of the unit cube.
pub(crate) fn exact(point: [f64; 3]) -> State {
    let along = |c: &[f64; 13], axis: usize| {
        let t = point[axis];
        t * (c[axis + 1] + t * (c[axis + 4] + t * (c[axis + 7] + t * c[axis + 10])))
    };
    EXACT.map(|c| c[0] + along(&c, 0) + along(&c, 1) + along(&c, 2))
}

/// Returns the initial state: the exact state on the faces of the cube, and a blend of opposite
/// faces inside.
pub(crate) fn initial(point: [f64; 3]) -> State {
    if point.iter().any(|&t| t == 0.0 || t == 1.0) {
        return exact(point);
    }
    let [x, y, z] = [0, 1, 2].map(|axis| {
        let face = |side: f64| {
            let mut on_face = point;
            on_face[axis] = side;
            exact(on_face)
        };
        let (near, far, t) = (face(0.0), face(1.0), point[axis]);
        std::array::from_fn::<f64, 5, _>(|m| t * far[m] + (1.0 - t) * near[m])
    });
    std::array::from_fn(|m| x[m] + y[m] + z[m] - x[m] * y[m] - x[m] * z[m] - y[m] * z[m] + x[m] * y[m] * z[m])
}
