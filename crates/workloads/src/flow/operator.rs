//! The spatial operator: central differences with neighbours in each direction.

use super::gas::{C1C5, C2, C3C4, CON43, DSSP, Gas, SMOOTHING, State};

/// Difference operator on a grid of `n` cells per side.
pub(super) struct Operator {
    n: usize,
    /// Factors of first and second differences.
    first: f64,
    second: f64,
}

impl Operator {
    pub(super) fn new(n: usize) -> Self {
        let cells = (n - 1) as f64;
        Self { n, first: cells / 2.0, second: cells * cells }
    }

    /// Returns the change per unit of time in an interior cell; `gas` returns the gas in any cell.
    #[inline]
    pub(super) fn apply(&self, cell: usize, gas: &impl Fn(usize) -> Gas) -> State {
        let n = self.n;
        let at = [cell % n, cell / n % n, cell / (n * n)];
        let here = gas(cell);
        let mut change = [0.0; 5];
        for (axis, stride) in [1, n, n * n].into_iter().enumerate() {
            let (before, after) = (gas(cell - stride), gas(cell + stride));
            let flux = self.flux(axis, &before, &here, &after);
            let smoothing = self.smoothing(at[axis], [&before, &here, &after], |far| {
                gas(if far < 0 { cell - 2 * stride } else { cell + 2 * stride }).u
            });
            for m in 0..5 {
                change[m] += flux[m] - DSSP * smoothing[m];
            }
        }
        change
    }

    /// Flux along `axis`: transport, pressure, viscosity and heat conduction.
    #[inline]
    fn flux(&self, axis: usize, before: &Gas, here: &Gas, after: &Gas) -> State {
        let viscosity = C3C4 * self.second;
        let bend = |a: f64, b: f64, c: f64| a - 2.0 * b + c;
        let along = |gas: &Gas| gas.velocity[axis];
        let (slow, speed, fast) = (along(before), along(here), along(after));
        let pressure = |gas: &Gas| C2 * (gas.u[4] - gas.square);
        let energy = |gas: &Gas| gas.u[4] * gas.rho_i;
        let transport: State = std::array::from_fn(|m| match m {
            0 => after.u[axis + 1] - before.u[axis + 1],
            4 => (after.u[4] + pressure(after)) * fast - (before.u[4] + pressure(before)) * slow,
            _ if m == axis + 1 => after.u[m] * fast - before.u[m] * slow + pressure(after) - pressure(before),
            _ => after.u[m] * fast - before.u[m] * slow,
        });
        let friction: State = std::array::from_fn(|m| match m {
            0 => 0.0,
            4 => {
                (1.0 - C1C5) * bend(before.qs, here.qs, after.qs)
                    + bend(slow * slow, speed * speed, fast * fast) / 6.0
                    + C1C5 * bend(energy(before), energy(here), energy(after))
            }
            _ => {
                let factor = if m == axis + 1 { CON43 } else { 1.0 };
                factor * bend(before.velocity[m - 1], here.velocity[m - 1], after.velocity[m - 1])
            }
        });
        let damping = SMOOTHING[axis] * self.second;
        std::array::from_fn(|m| {
            damping * bend(before.u[m], here.u[m], after.u[m]) + viscosity * friction[m]
                - self.first * transport[m]
        })
    }

    /// Fourth difference of the state; near a face, only the part inside. `far` returns the state
    /// two cells before (-1) or after (1).
    #[inline]
    fn smoothing(&self, at: usize, [before, here, after]: [&Gas; 3], far: impl Fn(i32) -> State) -> State {
        let last = self.n - 2;
        let centre = if at == 1 || at == last { 5.0 } else { 6.0 };
        let mut sum = here.u.map(|u| centre * u);
        let mut add = |inside: bool, factor: f64, state: State| {
            if inside {
                sum.iter_mut().zip(state).for_each(|(sum, u)| *sum += factor * u);
            }
        };
        add(at > 1, -4.0, before.u);
        add(at < last, -4.0, after.u);
        add(at > 2, 1.0, if at > 2 { far(-1) } else { [0.0; 5] });
        add(at + 1 < last, 1.0, if at + 1 < last { far(1) } else { [0.0; 5] });
        sum
    }
}
