//! `cg`: the NAS CG kernel. Inverse power iteration finds an eigenvalue of a random sparse matrix;
//! each outer iteration solves a system by 25 steps of conjugate gradients.

mod matrix;
mod trace;

use buddy_trace::Application;
use rayon::prelude::*;

use crate::workload::{Allocation, Check, Info, Workload};
use matrix::Matrix;

/// Entry of `buddy workload list`. NAS fixes the matrix's seed, so the seed passed to `build` has
/// no effect.
pub(crate) const INFO: Info = Info {
    name: "cg",
    paper_name: "354.cg",
    method: "NAS CG: conjugate gradients on a random sparse matrix (CSR)",
    paper_bytes: 1_230_000_000,
    seconds_per_mb: 0.12,
    simulated_seconds_per_mb: 0.32,
    has_host_memory: false,
    footprint: |bytes| Shape::fitting(bytes).bytes(),
    build: |bytes, _seed| Box::new(Cg::new(Shape::fitting(bytes))),
};

const INNER: usize = 25;

/// Elements per task of a reduction. Partial sums are added in order, so results are independent of
/// the number of threads.
const CHUNK: usize = 4096;

/// The size of a problem.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Shape {
    rows: usize,
    nonzeros: usize,
    shift: f64,
    steps: u64,
    /// Published eigenvalue, if this is a NAS class.
    zeta: Option<f64>,
}

impl Shape {
    const fn class(rows: usize, nonzeros: usize, shift: f64, steps: u64, zeta: f64) -> Self {
        Self { rows, nonzeros, shift, steps, zeta: Some(zeta) }
    }

    /// Returns a class near the request, else as many rows as fit with the parameters of the class
    /// of nearest size, for 20 iterations.
    fn fitting(bytes: u64) -> Self {
        let ratio = |class: &Self| class.bytes() as f64 / bytes as f64;
        if let Some(class) = CLASSES.iter().find(|class| (0.8..=1.1).contains(&ratio(class))) {
            return *class;
        }
        let distance = |class: &&Self| ratio(class).ln().abs();
        let near = CLASSES.iter().min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(&CLASSES[0]);
        let per_row = near.bytes() / near.rows as u64;
        Self { rows: (bytes / per_row) as usize, steps: 20, zeta: None, ..*near }
    }

    /// Returns the bytes of all arrays.
    fn bytes(&self) -> u64 {
        let room = self.rows * (self.nonzeros + 1) * (self.nonzeros + 1);
        (room * 12 + (self.rows + 1) * 4 + 5 * (self.rows + 2) * 8) as u64
    }
}

/// NAS classes S, W, A, B, C and D.
const CLASSES: [Shape; 6] = [
    Shape::class(1_400, 7, 10.0, 15, 8.597_177_507_864_8),
    Shape::class(7_000, 8, 12.0, 15, 10.362_595_087_124),
    Shape::class(14_000, 11, 20.0, 15, 17.130_235_054_029),
    Shape::class(75_000, 13, 60.0, 75, 22.712_745_482_631),
    Shape::class(150_000, 15, 110.0, 75, 28.973_605_592_845),
    Shape::class(1_500_000, 21, 500.0, 100, 52.514_532_105_794),
];

struct Cg {
    shape: Shape,
    matrix: Matrix,
    x: Vec<f64>,
    z: Vec<f64>,
    p: Vec<f64>,
    q: Vec<f64>,
    r: Vec<f64>,
    zeta: f64,
    /// Norm of `A z - x` after the last solve.
    residual: f64,
}

impl Cg {
    fn new(shape: Shape) -> Self {
        let zeros = || vec![0.0; shape.rows + 2];
        let mut x = zeros();
        x[..=shape.rows].fill(1.0);
        let matrix = Matrix::random(shape.rows, shape.nonzeros, shape.shift);
        Self { shape, matrix, x, z: zeros(), p: zeros(), q: zeros(), r: zeros(), zeta: 0.0, residual: 0.0 }
    }

    /// Solves `A z = x` approximately; leaves `A z` in `r`.
    fn solve(&mut self) {
        let n = self.shape.rows;
        let Self { matrix, x, z, p, q, r, .. } = self;
        z[..n].fill(0.0);
        r[..n].copy_from_slice(&x[..n]);
        p[..n].copy_from_slice(&x[..n]);
        let mut rho = dot(&r[..n], &r[..n]);
        for _ in 0..INNER {
            matrix.times(p, q);
            let alpha = rho / dot(&p[..n], &q[..n]);
            update(&mut z[..n], &p[..n], |z, p| z + alpha * p);
            update(&mut r[..n], &q[..n], |r, q| r - alpha * q);
            let before = std::mem::replace(&mut rho, dot(&r[..n], &r[..n]));
            let beta = rho / before;
            update(&mut p[..n], &r[..n], |p, r| r + beta * p);
        }
        matrix.times(z, r);
        self.residual = sum(&x[..n], &r[..n], |x, r| (x - r) * (x - r)).sqrt();
    }
}

impl Cg {
    fn check_zeta(&self, expected: f64) -> Check {
        Check { what: "NAS zeta", measured: self.zeta, expected, tolerance: 1e-10 * expected }
    }

    /// Check for sizes that are not a class: the Rayleigh quotient estimates the same eigenvalue.
    /// The difference shrinks with each iteration; large matrices leave about a millionth after 20.
    fn check_rayleigh(&self) -> Check {
        let n = self.shape.rows;
        let mut product = vec![0.0; n];
        self.matrix.times(&self.x, &mut product);
        let expected = self.shape.shift + dot(&self.x[..n], &product);
        Check { what: "zeta by Rayleigh quotient", measured: self.zeta, expected, tolerance: 1e-5 * expected }
    }
}

/// Returns the sum of `term` over two vectors, independent of the number of threads.
fn sum(a: &[f64], b: &[f64], term: impl Fn(f64, f64) -> f64 + Sync) -> f64 {
    let part = |(a, b): (&[f64], &[f64])| a.iter().zip(b).map(|(&a, &b)| term(a, b)).sum::<f64>();
    let parts: Vec<f64> = a.par_chunks(CHUNK).zip(b.par_chunks(CHUNK)).map(part).collect();
    parts.iter().sum()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    sum(a, b, |a, b| a * b)
}

/// Sets `a = change(a, b)` for each element.
fn update(a: &mut [f64], b: &[f64], change: impl Fn(f64, f64) -> f64 + Sync) {
    a.par_iter_mut().zip(b).with_min_len(CHUNK).for_each(|(a, &b)| *a = change(*a, b));
}

impl Workload for Cg {
    fn steps(&self) -> u64 {
        self.shape.steps
    }

    fn step(&mut self) {
        let n = self.shape.rows;
        self.solve();
        self.zeta = self.shape.shift + 1.0 / dot(&self.x[..n], &self.z[..n]);
        let scale = 1.0 / dot(&self.z[..n], &self.z[..n]).sqrt();
        update(&mut self.x[..n], &self.z[..n], |_, z| scale * z);
    }

    fn allocations(&self) -> Vec<Allocation<'_>> {
        let site = "cg.c: main";
        let vectors = [("x", &self.x), ("z", &self.z), ("p", &self.p), ("q", &self.q), ("r", &self.r)];
        let mut all = vec![
            Allocation::i32("colidx", site, &self.matrix.colidx),
            Allocation::f64("a", site, &self.matrix.a),
            Allocation::i32("rowstr", site, &self.matrix.rowstr),
        ];
        all.extend(vectors.map(|(name, data)| Allocation::f64(name, site, data)));
        all
    }

    fn application(&self) -> Application {
        trace::application(self)
    }

    /// Checks the matrix, the last solve and the eigenvalue.
    fn check(&self) -> Vec<Check> {
        let (measured, expected) = self.matrix.sums(self.shape.nonzeros, self.shape.shift);
        let tolerance = 1e-11 * expected.abs();
        let matrix = Check { what: "sum of the matrix", measured, expected, tolerance };
        let (measured, expected, tolerance) = (self.residual, 0.0, 1e-10);
        let solve = Check { what: "residual of the last solve", measured, expected, tolerance };
        vec![
            matrix,
            solve,
            self.shape.zeta.map_or_else(|| self.check_rayleigh(), |zeta| self.check_zeta(zeta)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::tests::{assert_footprint, finish};

    #[test]
    fn classes_s_and_w_have_the_published_zeta() {
        for class in &CLASSES[..2] {
            let checks = finish(&mut Cg::new(*class));
            assert_eq!(Some(checks[2].expected), class.zeta);
        }
    }

    #[test]
    fn a_size_between_classes_finds_an_eigenvalue() {
        let shape = Shape::fitting(3_000_000);
        assert_eq!(shape.zeta, None);
        finish(&mut Cg::new(shape));
    }

    #[test]
    fn a_wrong_element_fails_the_check() {
        for shape in [CLASSES[0], Shape::fitting(3_000_000)] {
            let mut cg = Cg::new(shape);
            cg.matrix.a[5_000] += 1e-3;
            (0..cg.steps()).for_each(|_| cg.step());
            assert!(!cg.check()[0].passed());
        }
    }

    #[test]
    fn too_few_iterations_fail_the_check() {
        for shape in [CLASSES[0], Shape::fitting(3_000_000)] {
            let mut cg = Cg::new(shape);
            cg.step();
            assert!(!cg.check()[2].passed(), "{:?}", cg.check());
        }
    }

    #[test]
    fn unused_capacity_is_zero() {
        let cg = Cg::new(CLASSES[0]);
        let used = cg.matrix.rowstr[cg.shape.rows] as usize;
        assert!(used < cg.matrix.a.len());
        assert!(cg.matrix.a[used..].iter().all(|a| *a == 0.0));
    }

    #[test]
    fn shapes_fit_any_request() {
        assert_footprint(INFO.paper_bytes, |bytes| Shape::fitting(bytes).bytes());
    }
}
