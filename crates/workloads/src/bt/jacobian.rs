//! Jacobians of the flow along one direction: derivatives of each equation (row) by each state
//! component (column).

use super::block::Block;
use crate::flow::{C1, C2, C3C4, C1345, CON43, Gas};

/// Returns the derivatives of transport and pressure.
pub(super) fn flux(gas: &Gas, axis: usize) -> Block {
    let Gas { u, velocity, rho_i, square, qs } = *gas;
    let (normal, speed) = (axis + 1, velocity[axis]);
    let energy = u[4] * rho_i;
    let mut block = [[0.0; 5]; 5];
    block[0][normal] = 1.0;
    for m in 1..4 {
        block[m][0] = -speed * velocity[m - 1];
        block[m][normal] = velocity[m - 1];
        block[m][m] = speed;
        block[4][m] = -C2 * velocity[m - 1] * speed;
    }
    // Pressure acts along the direction.
    block[normal][0] += C2 * qs;
    for m in 1..4 {
        block[normal][m] -= C2 * velocity[m - 1];
    }
    block[normal][normal] += speed;
    block[normal][4] = C2;
    block[4][0] = (2.0 * C2 * square * rho_i - C1 * energy) * speed;
    block[4][normal] += C1 * energy - C2 * qs;
    block[4][4] = C1 * speed;
    block
}

/// Returns the derivatives of viscosity and heat conduction, per second difference.
pub(super) fn friction(gas: &Gas, axis: usize) -> Block {
    let Gas { u, velocity, rho_i, .. } = *gas;
    let mut block = [[0.0; 5]; 5];
    block[4][0] = -C1345 * rho_i * rho_i * u[4];
    for m in 1..4 {
        let viscosity = if m == axis + 1 { CON43 * C3C4 } else { C3C4 };
        let speed = velocity[m - 1];
        block[m][0] = -viscosity * rho_i * speed;
        block[m][m] = viscosity * rho_i;
        block[4][0] -= (viscosity - C1345) * rho_i * speed * speed;
        block[4][m] = (viscosity - C1345) * rho_i * speed;
    }
    block[4][4] = C1345 * rho_i;
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the central differences of a function of the state.
    fn differences(function: impl Fn(&Gas) -> [f64; 5], u: [f64; 5]) -> Block {
        let mut block = [[0.0; 5]; 5];
        for column in 0..5 {
            let moved = |by: f64| {
                let mut moved = u;
                moved[column] += by;
                function(&Gas::of(moved))
            };
            let (up, down) = (moved(1e-6), moved(-1e-6));
            for row in 0..5 {
                block[row][column] = (up[row] - down[row]) / 2e-6;
            }
        }
        block
    }

    fn assert_near(found: Block, wanted: Block) {
        for (found, wanted) in found.as_flattened().iter().zip(wanted.as_flattened()) {
            assert!((found - wanted).abs() < 1e-7, "{found} {wanted}");
        }
    }

    const U: [f64; 5] = [1.7, 0.4, -0.9, 1.3, 5.1];

    #[test]
    fn flux_jacobian_is_the_derivative() {
        for axis in 0..3 {
            let transport = |gas: &Gas| {
                let (speed, pressure) = (gas.velocity[axis], C2 * (gas.u[4] - gas.square));
                let mut flux = gas.u.map(|u| u * speed);
                flux[axis + 1] += pressure;
                flux[4] += pressure * speed;
                flux
            };
            assert_near(flux(&Gas::of(U), axis), differences(transport, U));
        }
    }

    #[test]
    fn friction_jacobian_is_the_derivative() {
        for axis in 0..3 {
            let diffused = |gas: &Gas| {
                let [x, y, z] = gas.velocity;
                let along = gas.velocity[axis];
                let mut value = [0.0, x, y, z, 0.0].map(|speed| C3C4 * speed);
                value[axis + 1] *= CON43;
                value[4] =
                    (C3C4 - C1345) * gas.qs + C3C4 * along * along / 6.0 + C1345 * gas.u[4] * gas.rho_i;
                value
            };
            assert_near(friction(&Gas::of(U), axis), differences(diffused, U));
        }
    }
}
