//! The D3Q19 lattice, and the collision of one cell.

/// Directions of a cell: rest, six faces, twelve edges. A direction and its opposite are 1 and 2, 3
/// and 4, ...
pub(super) const DIRECTIONS: [[i32; 3]; 19] = [
    [0, 0, 0],
    [1, 0, 0],
    [-1, 0, 0],
    [0, 1, 0],
    [0, -1, 0],
    [0, 0, 1],
    [0, 0, -1],
    [1, 1, 0],
    [-1, -1, 0],
    [1, -1, 0],
    [-1, 1, 0],
    [1, 0, 1],
    [-1, 0, -1],
    [1, 0, -1],
    [-1, 0, 1],
    [0, 1, 1],
    [0, -1, -1],
    [0, 1, -1],
    [0, -1, 1],
];

/// Viscosity in lattice units, at which the symmetric part relaxes in one step.
pub(super) const VISCOSITY: f64 = 1.0 / 6.0;
/// Relaxation of the symmetric part.
const EVEN: f64 = 1.0 / (3.0 * VISCOSITY + 0.5);
/// Relaxation of the antisymmetric part: a product of 3/16 puts walls exactly halfway between
/// cells.
const ODD: f64 = 1.0 / (3.0 / 16.0 / (3.0 * VISCOSITY) + 0.5);

/// Returns the equilibrium weight of a direction at rest.
pub(super) const fn weight(direction: usize) -> f64 {
    match direction {
        0 => 1.0 / 3.0,
        1..=6 => 1.0 / 18.0,
        _ => 1.0 / 36.0,
    }
}

/// Returns the opposite direction.
pub(super) const fn opposite(direction: usize) -> usize {
    if direction == 0 { 0 } else { ((direction - 1) ^ 1) + 1 }
}

/// Returns density and momentum of one cell's populations.
pub(super) fn moments(f: &[f64; 19]) -> (f64, [f64; 3]) {
    let density = f.iter().sum();
    let momentum =
        std::array::from_fn(|axis| f.iter().zip(DIRECTIONS).map(|(f, c)| f * f64::from(c[axis])).sum());
    (density, momentum)
}

/// The two-relaxation-time collision, with a body force along x.
#[inline]
pub(super) fn collide(f: &mut [f64; 19], force: f64) {
    let (density, momentum) = moments(f);
    let u = momentum.map(|part| part / density);
    let square = 1.0 - 1.5 * (u[0] * u[0] + u[1] * u[1] + u[2] * u[2]);
    f[0] += EVEN * (weight(0) * density * square - f[0]);
    for i in (1..19).step_by(2) {
        let c = DIRECTIONS[i].map(f64::from);
        let along = c[0] * u[0] + c[1] * u[1] + c[2] * u[2];
        let (even, odd) = (0.5 * (f[i] + f[i + 1]), 0.5 * (f[i] - f[i + 1]));
        let even_change = EVEN * (even - weight(i) * density * (square + 4.5 * along * along));
        let odd_change = ODD * (odd - 3.0 * weight(i) * density * along) - 3.0 * weight(i) * c[0] * force;
        f[i] -= even_change + odd_change;
        f[i + 1] -= even_change - odd_change;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opposites_cancel() {
        for i in 0..19 {
            let (c, back) = (DIRECTIONS[i], DIRECTIONS[opposite(i)]);
            assert_eq!([c[0] + back[0], c[1] + back[1], c[2] + back[2]], [0; 3]);
        }
    }

    #[test]
    fn a_collision_keeps_mass_and_adds_the_force() {
        let mut f: [f64; 19] = std::array::from_fn(|i| weight(i) * (1.0 + 0.01 * (i as f64).sin()));
        let (mass, momentum) = moments(&f);
        collide(&mut f, 1e-3);
        let (after, pushed) = moments(&f);
        assert!((after - mass).abs() < 1e-15);
        assert!((pushed[0] - momentum[0] - 1e-3).abs() < 1e-15);
        assert!((pushed[1] - momentum[1]).abs() < 1e-15);
    }
}
