//! Pentadiagonal systems: assembly on a line and solution.

use crate::flow::DSSP;

/// Difference coefficients for a step of length `dt`.
pub(super) struct Coefficients {
    /// First and second differences.
    first: f64,
    second: f64,
    /// Weight of the fourth differences that damp the finest waves.
    fourth: f64,
}

/// Rows of a system: two bands below the diagonal, the diagonal, two above.
type Bands = Vec<[f64; 5]>;

/// Row of a face cell: the identity.
const FIXED: [f64; 5] = [0.0, 0.0, 1.0, 0.0, 0.0];

impl Coefficients {
    pub(super) fn new(n: usize, dt: f64) -> Self {
        let cells = (n - 1) as f64;
        Self { first: dt * cells / 2.0, second: dt * cells * cells, fourth: dt * DSSP }
    }

    /// Returns the systems of waves that move with the flow, and with sound along and against it.
    /// `at` returns flow speed, sound speed and stiffness at a position.
    pub(super) fn bands(&self, n: usize, at: impl Fn(usize) -> (f64, f64, f64)) -> [Bands; 3] {
        let mut systems = [vec![FIXED; n], vec![FIXED; n], vec![FIXED; n]];
        for position in 1..n - 1 {
            let (before, here, after) = (at(position - 1), at(position), at(position + 1));
            let smoothing = self.smoothing(position, n);
            for (system, sound) in systems.iter_mut().zip([0.0, 1.0, -1.0]) {
                let wave = |(flow, speed, _): (f64, f64, f64)| self.first * (flow + sound * speed);
                system[position] = [
                    smoothing[0],
                    smoothing[1] - wave(before) - self.second * before.2,
                    smoothing[2] + 1.0 + 2.0 * self.second * here.2,
                    smoothing[3] + wave(after) - self.second * after.2,
                    smoothing[4],
                ];
            }
        }
        systems
    }

    /// Returns the fourth difference; near a face, only the part inside.
    fn smoothing(&self, position: usize, n: usize) -> [f64; 5] {
        let (from_first, from_last) = (position - 1, n - 2 - position);
        let centre = if from_first == 0 || from_last == 0 { 5.0 } else { 6.0 };
        let inside = |inside: bool, factor: f64| if inside { factor * self.fourth } else { 0.0 };
        [
            inside(from_first > 1, 1.0),
            inside(from_first > 0, -4.0),
            centre * self.fourth,
            inside(from_last > 0, -4.0),
            inside(from_last > 1, 1.0),
        ]
    }
}

/// Solves a system for `C` right-hand sides by elimination without pivoting; the bands hold the
/// factors afterwards.
pub(super) fn eliminate<const C: usize>(bands: &mut [[f64; 5]], right: &mut [[f64; C]]) {
    let n = bands.len();
    for row in 0..n {
        let scale = 1.0 / bands[row][2];
        bands[row][3] *= scale;
        bands[row][4] *= scale;
        right[row] = right[row].map(|r| r * scale);
        for below in row + 1..n.min(row + 3) {
            // Index of `below`'s band under this row's diagonal.
            let band = 2 + row - below;
            let factor = bands[below][band];
            bands[below][band + 1] -= factor * bands[row][3];
            bands[below][band + 2] -= factor * bands[row][4];
            right[below] = std::array::from_fn(|m| right[below][m] - factor * right[row][m]);
        }
    }
    for row in (0..n - 1).rev() {
        let [_, _, _, one, two] = bands[row];
        let (next, after) = (right[row + 1], right.get(row + 2).copied().unwrap_or([0.0; C]));
        right[row] = std::array::from_fn(|m| right[row][m] - one * next[m] - two * after[m]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elimination_solves_the_system() {
        let n = 9;
        let solution: Vec<[f64; 2]> =
            (0..n).map(|row| [row as f64 - 3.0, 1.0 / (row as f64 + 1.0)]).collect();
        let mut bands: Vec<[f64; 5]> = (0..n).map(|row| [0.1, -1.0, 4.0 + row as f64, -0.7, 0.3]).collect();
        let mut right: Vec<[f64; 2]> = (0..n)
            .map(|row| {
                std::array::from_fn(|m| {
                    let reach = (0..5).filter(|band| (2..n + 2).contains(&(row + band)));
                    reach.map(|band| bands[row][band] * solution[row + band - 2][m]).sum()
                })
            })
            .collect();
        eliminate(&mut bands, &mut right);
        for (found, wanted) in right.iter().flatten().zip(solution.iter().flatten()) {
            assert!((found - wanted).abs() < 1e-13, "{found} {wanted}");
        }
    }
}
