//! Block-tridiagonal systems of 5 by 5 blocks: assembly on a line and solution.

/// A 5 by 5 matrix in row order.
pub(super) type Block = [[f64; 5]; 5];

const ZERO: Block = [[0.0; 5]; 5];

/// Difference coefficients for a step of length `dt`.
pub(super) struct System {
    first: f64,
    second: f64,
    smoothing: f64,
}

impl System {
    pub(super) fn new(n: usize, dt: f64, smoothing: f64) -> Self {
        let cells = (n - 1) as f64;
        Self { first: dt * cells / 2.0, second: dt * cells * cells, smoothing }
    }

    /// Returns the blocks below, on and above the diagonal, from the (flux, viscous) Jacobians on a
    /// line. Rows of face cells are the identity.
    pub(super) fn blocks(&self, jacobians: &[[Block; 2]]) -> Vec<[Block; 3]> {
        let mut blocks = vec![[ZERO, diagonal(1.0), ZERO]; jacobians.len()];
        for (position, blocks) in blocks.iter_mut().enumerate().take(jacobians.len() - 1).skip(1) {
            let (before, here, after) =
                (&jacobians[position - 1], &jacobians[position], &jacobians[position + 1]);
            *blocks = [
                self.combine(before, -self.first, -self.second, 0.0),
                self.combine(here, 0.0, 2.0 * self.second, 1.0),
                self.combine(after, self.first, -self.second, 0.0),
            ];
        }
        blocks
    }

    /// `first * flux + second * (friction + smoothing) + one`.
    fn combine(&self, [flux, friction]: &[Block; 2], first: f64, second: f64, one: f64) -> Block {
        let mut block = diagonal(one + second * self.smoothing);
        for row in 0..5 {
            for column in 0..5 {
                block[row][column] += first * flux[row][column] + second * friction[row][column];
            }
        }
        block
    }
}

fn diagonal(value: f64) -> Block {
    std::array::from_fn(|row| std::array::from_fn(|column| if row == column { value } else { 0.0 }))
}

/// Solves a system by elimination without pivoting; the blocks hold the factors afterwards.
pub(super) fn eliminate(blocks: &mut [[Block; 3]], right: &mut [[f64; 5]]) {
    for row in 0..blocks.len() {
        if row > 0 {
            let below = blocks[row][0];
            let above = blocks[row - 1][2];
            subtract_vector(&below, &right[row - 1].clone(), &mut right[row]);
            subtract_product(&below, &above, &mut blocks[row][1]);
        }
        let [_, centre, above] = &mut blocks[row];
        divide(centre, above, &mut right[row]);
    }
    for row in (0..blocks.len() - 1).rev() {
        subtract_vector(&blocks[row][2], &right[row + 1].clone(), &mut right[row]);
    }
}

/// `from -= a v`.
#[inline]
fn subtract_vector(a: &Block, v: &[f64; 5], from: &mut [f64; 5]) {
    for (from, row) in from.iter_mut().zip(a) {
        *from -= row.iter().zip(v).map(|(a, v)| a * v).sum::<f64>();
    }
}

/// `from -= a b`.
#[inline]
fn subtract_product(a: &Block, b: &Block, from: &mut Block) {
    for (from, row) in from.iter_mut().zip(a) {
        for (a, b) in row.iter().zip(b) {
            for (from, b) in from.iter_mut().zip(b) {
                *from -= a * b;
            }
        }
    }
}

/// Multiplies `above` and `right` with the inverse of `centre`, by Gauss-Jordan elimination.
#[inline]
fn divide(centre: &mut Block, above: &mut Block, right: &mut [f64; 5]) {
    for pivot in 0..5 {
        let scale = 1.0 / centre[pivot][pivot];
        centre[pivot].iter_mut().skip(pivot + 1).for_each(|value| *value *= scale);
        above[pivot] = above[pivot].map(|value| value * scale);
        right[pivot] *= scale;
        let (from_centre, from_above, from_right) = (centre[pivot], above[pivot], right[pivot]);
        for row in (0..5).filter(|row| *row != pivot) {
            let factor = centre[row][pivot];
            for column in pivot + 1..5 {
                centre[row][column] -= factor * from_centre[column];
            }
            for column in 0..5 {
                above[row][column] -= factor * from_above[column];
            }
            right[row] -= factor * from_right;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elimination_solves_the_system() {
        let n = 6;
        let block = |seed: f64, on_diagonal: f64| {
            let mut block = diagonal(on_diagonal);
            block
                .as_flattened_mut()
                .iter_mut()
                .enumerate()
                .for_each(|(at, v)| *v += (seed + at as f64).sin());
            block
        };
        let mut blocks: Vec<[Block; 3]> = (0..n)
            .map(|row| row as f64 * 100.0)
            .map(|seed| [block(seed, 0.0), block(seed + 30.0, 20.0), block(seed + 60.0, 0.0)])
            .collect();
        (blocks[0][0], blocks[n - 1][2]) = (ZERO, ZERO);
        let solution: Vec<[f64; 5]> =
            (0..n).map(|row| std::array::from_fn(|m| (row * 5 + m) as f64)).collect();
        let mut right = vec![[0.0; 5]; n];
        for row in 0..n {
            for (at, block) in blocks[row].iter().enumerate().filter(|(at, _)| (1..=n).contains(&(row + at)))
            {
                let negated = block.map(|row| row.map(|value| -value));
                subtract_vector(&negated, &solution[row + at - 1], &mut right[row]);
            }
        }
        eliminate(&mut blocks, &mut right);
        for (found, wanted) in right.as_flattened().iter().zip(solution.as_flattened()) {
            assert!((found - wanted).abs() < 1e-11, "{found} {wanted}");
        }
    }
}
