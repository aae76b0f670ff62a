//! The seven-point operator, the residual and the Chebyshev smoother.

use super::level::{Level, Shape, TEMP, U};

/// Bound on the eigenvalues of the operator over its diagonal (Gershgorin).
const LARGEST_EIGENVALUE: f64 = 2.0;

/// A Chebyshev smoother: degree, and least damped eigenvalue as a share of the largest.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chebyshev {
    pub(super) degree: usize,
    least: f64,
}

/// Smoother: damps the errors that a coarser level cannot represent.
pub(super) const SMOOTHER: Chebyshev = Chebyshev { degree: 4, least: 0.125 };
/// Bottom solver: damps all errors of the coarsest level.
pub(super) const SOLVER: Chebyshev = Chebyshev { degree: 48, least: 0.01 };

impl Chebyshev {
    /// Returns, per application, the weights of the last change and of the residual.
    fn weights(self) -> impl Iterator<Item = [f64; 2]> {
        let (high, low) = (LARGEST_EIGENVALUE, LARGEST_EIGENVALUE * self.least);
        let (middle, half) = (0.5 * (high + low), 0.5 * (high - low));
        let sigma = middle / half;
        let mut rho = 1.0 / sigma;
        (0..self.degree).map(move |n| {
            if n == 0 {
                return [0.0, 1.0 / middle];
            }
            let next = 1.0 / (2.0 * sigma - rho);
            let weights = [next * rho, 2.0 * next / half];
            rho = next;
            weights
        })
    }
}

impl Level {
    /// Smooths U; the iterates alternate between U and TEMP.
    pub(super) fn smooth(&mut self, polynomial: Chebyshev) {
        debug_assert!(polynomial.degree.is_multiple_of(2), "the last step must end in U");
        let shape = self.shape;
        for (n, [keep, add]) in polynomial.weights().enumerate() {
            let even = n % 2 == 0;
            self.fill_ghosts(if even { U } else { TEMP });
            self.each_box(|_, [temp, _, _, f, u, alpha, beta_i, beta_j, beta_k, dinv, _, _]| {
                let (x, next) = if even { (&*u, temp) } else { (&*temp, u) };
                let stencil = Stencil { shape, x, alpha, beta: [beta_i, beta_j, beta_k] };
                for row in shape.rows() {
                    let cells = row..row + shape.dim;
                    let (x, f, dinv) = (&x[cells.clone()], &f[cells.clone()], &dinv[cells.clone()]);
                    let next = &mut next[cells];
                    stencil.apply_row(row, |i, ax| {
                        next[i] = x[i] + keep * (x[i] - next[i]) + add * dinv[i] * (f[i] - ax);
                    });
                }
            });
        }
    }

    /// Computes RESIDUAL = F - A U.
    pub(super) fn compute_residual(&mut self) {
        self.fill_ghosts(U);
        let shape = self.shape;
        self.each_box(|_, [_, _, residual, f, u, alpha, beta_i, beta_j, beta_k, ..]| {
            let stencil = Stencil { shape, x: u, alpha, beta: [beta_i, beta_j, beta_k] };
            for row in shape.rows() {
                let (f, residual) = (&f[row..row + shape.dim], &mut residual[row..row + shape.dim]);
                stencil.apply_row(row, |i, ax| residual[i] = f[i] - ax);
            }
        });
    }
}

/// Vectors of one box that the operator reads.
struct Stencil<'a> {
    shape: Shape,
    x: &'a [f64],
    alpha: &'a [f64],
    beta: [&'a [f64]; 3],
}

impl<'a> Stencil<'a> {
    /// Applies the operator along a row: sums the fluxes through the six faces of each cell.
    #[inline]
    fn apply_row(&self, row: usize, mut cell: impl FnMut(usize, f64)) {
        let (n, scale) = (self.shape.dim, self.shape.h().powi(-2));
        let part = |values: &'a [f64], from: usize| &values[from..from + n];
        let (x, alpha) = (part(self.x, row), part(self.alpha, row));
        let axes: [_; 3] = std::array::from_fn(|axis| {
            let stride = [1, self.shape.j_stride(), self.shape.k_stride()][axis];
            let neighbours = [part(self.x, row - stride), part(self.x, row + stride)];
            (neighbours, [part(self.beta[axis], row), part(self.beta[axis], row + stride)])
        });
        for i in 0..n {
            let flux = |([below, above], [low, high]): ([&[f64]; 2], [&[f64]; 2])| {
                high[i] * (above[i] - x[i]) + low[i] * (below[i] - x[i])
            };
            cell(i, alpha[i] * x[i] - scale * (flux(axes[0]) + flux(axes[1]) + flux(axes[2])));
        }
    }
}
