//! `hpgmg` on a GPU: V-cycles, with the kernels of every level on the way down and up.
//!
//! Two things cross the link in the program's native form. The inter-level buffers are in host
//! memory, where the original keeps its coarse levels. After each packing of ghost cells the faces
//! return from the host by a synchronous copy, as between MPI processes.
//!
//! Instructions counted: 19 for the operator, 5 more to smooth, 1 for a residual, 8 to average, 4
//! to interpolate a cell.

use buddy_trace::{
    Application, Op, Step,
    pattern::{Affine, Array, Body, Nest},
};

use super::{
    Hpgmg,
    level::{F, RESIDUAL, Shape, TEMP, U, VECTORS},
    stencil::{Chebyshev, SMOOTHER, SOLVER},
};
use crate::layout::Layout;

/// V-cycles: a billion warp instructions at the paper's footprint.
const CYCLES: usize = 3;

/// Indices of the vectors of a box after U.
const ALPHA: usize = 5;
const BETA: usize = 6;
const DINV: usize = 9;

pub(super) fn application(hpgmg: &Hpgmg) -> Application {
    let layout = Layout::of(hpgmg);
    let levels: Vec<Trace> = (0..hpgmg.levels.len()).map(|level| Trace::new(hpgmg, &layout, level)).collect();
    let mut steps = Vec::new();
    (0..CYCLES).for_each(|_| v_cycle(&levels, &mut steps));
    let host = (1..levels.len()).map(|level| format!("level{level}.copy")).collect();
    Application { host, ..layout.application("hpgmg", steps) }
}

fn v_cycle(levels: &[Trace], steps: &mut Vec<Step>) {
    let (level, coarser) = (&levels[0], &levels[1..]);
    let Some(coarse) = coarser.first() else { return level.smooth(SOLVER, steps) };
    level.smooth(SMOOTHER, steps);
    level.fill_ghosts(U, steps);
    steps.push(Step::of(level.stencil("residual", U, &[F], RESIDUAL, 20)));
    steps.extend(level.restrict(coarse).map(Step::of));
    v_cycle(coarser, steps);
    coarse.fill_ghosts(U, steps);
    steps.extend(level.interpolate(coarse).map(Step::of));
    level.smooth(SMOOTHER, steps);
}

/// Arrays of one multigrid level.
struct Trace {
    shape: Shape,
    vectors: Array,
    exchange: Array,
    /// Buffer between this level and the finer one; the finest has none.
    copy: Option<Array>,
    number: usize,
}

impl Trace {
    fn new(hpgmg: &Hpgmg, layout: &Layout, number: usize) -> Self {
        let array = |name: &str| layout.array(&format!("level{number}.{name}"));
        let copy = (number > 0).then(|| array("copy"));
        let shape = hpgmg.levels[number].shape;
        Self { shape, vectors: array("vectors"), exchange: array("exchange"), copy, number }
    }

    fn boxes(&self) -> usize {
        self.shape.boxes.pow(3)
    }

    fn strides(&self) -> [i64; 3] {
        [1, self.shape.j_stride() as i64, self.shape.k_stride() as i64]
    }

    fn name(&self, what: &str) -> String {
        format!("{what}, level {}", self.number)
    }

    /// Indexes a vector's cells, `apart` cells between threads.
    fn cells(&self, vector: usize, apart: i64) -> Affine {
        let ([i, j, k], volume) = (self.strides(), self.shape.volume() as i64);
        let along = [i * apart, j * apart, k * apart, VECTORS as i64 * volume];
        Affine::along(along).plus(i + j + k + vector as i64 * volume)
    }

    /// Indexes the inter-level buffer, which has one vector.
    fn copied(&self) -> Affine {
        let [i, j, k] = self.strides();
        Affine::along([i, j, k, self.shape.volume() as i64]).plus(i + j + k)
    }

    fn star(&self) -> [i64; 7] {
        let [i, j, k] = self.strides();
        [-k, -j, -i, 0, i, j, k]
    }

    /// Applies the operator to `x`, reading the other vectors too.
    fn stencil(&self, what: &str, x: usize, others: &[usize], to: usize, work: u32) -> Nest {
        let at = |vector| self.cells(vector, 1);
        let mut body =
            Body::default().load_each(self.vectors, at(x), &self.star()).load(self.vectors, at(ALPHA));
        for (axis, stride) in self.strides().into_iter().enumerate() {
            body = body.load_each(self.vectors, at(BETA + axis), &[0, stride]);
        }
        let body = others.iter().fold(body, |body, &vector| body.load(self.vectors, at(vector)));
        let body = body.work(Op::Fp64, work, 3).store(self.vectors, at(to));
        let dim = self.shape.dim;
        Nest::new(&self.name(what), [dim, dim, dim, self.boxes()], 64).phase(1, &body)
    }

    /// Applies the polynomial, alternating between two vectors.
    fn smooth(&self, polynomial: Chebyshev, steps: &mut Vec<Step>) {
        for number in 0..polynomial.degree {
            let (x, next) = if number % 2 == 0 { (U, TEMP) } else { (TEMP, U) };
            self.fill_ghosts(x, steps);
            steps.push(Step::of(self.stencil("smooth", x, &[F, DINV, next], next, 24)));
        }
    }

    /// Packs the six faces of each box, copies, and unpacks them. A box reads its own faces instead
    /// of its neighbours': equally many, equally near.
    fn fill_ghosts(&self, vector: usize, steps: &mut Vec<Step>) {
        let (dim, square) = (self.shape.dim, self.shape.dim.pow(2) as i64);
        let buffer = |face: i64| Affine::along([1, dim as i64, 6 * square, 0]).plus(face * square);
        let (mut pack, mut unpack) = (Body::default(), Body::default());
        for face in 0..6 {
            pack = pack
                .load(self.vectors, self.face(vector, face, 1, dim))
                .store(self.exchange, buffer(face as i64));
            unpack = unpack
                .load(self.exchange, buffer(face as i64 ^ 1))
                .store(self.vectors, self.face(vector, face, 0, dim + 1));
        }
        let size = [dim, dim, self.boxes(), 1];
        steps.push(Step::of(Nest::new(&self.name("pack"), size, 40).phase(1, &pack)));
        steps.push(Step::Copy { bytes: (self.boxes() as i64 * 6 * square * 8) as u64 });
        steps.push(Step::of(Nest::new(&self.name("unpack"), size, 40).phase(1, &unpack)));
    }

    /// Indexes a layer of cells along a face: at depth `low` of a lower face, `high` of an upper
    /// one.
    fn face(&self, vector: usize, face: usize, low: usize, high: usize) -> Affine {
        let (strides, volume) = (self.strides(), self.shape.volume() as i64);
        let axis = face / 2;
        let [p, q] = [[1, 2], [0, 2], [0, 1]][axis];
        let depth = if face.is_multiple_of(2) { low } else { high } as i64;
        let first = strides[p] + strides[q] + depth * strides[axis] + vector as i64 * volume;
        Affine::along([strides[p], strides[q], VECTORS as i64 * volume, 0]).plus(first)
    }

    /// Averages the residual into the host's buffer, then copies it to the coarse level and clears
    /// its solution.
    fn restrict(&self, coarse: &Self) -> [Nest; 2] {
        let copy = coarse.copy.expect("a coarser level has a buffer");
        let from = self.cells(RESIDUAL, 2);
        let average = Body::default().load_each(self.vectors, from, &self.eight()).work(Op::Fp64, 8, 2);
        let bring = Body::default().load(copy, coarse.copied());
        let bring = [F, U].iter().fold(bring, |body, &to| body.store(coarse.vectors, coarse.cells(to, 1)));
        let (dim, boxes) = (coarse.shape.dim, coarse.boxes());
        let nest =
            |what, body: &Body| Nest::new(&coarse.name(what), [dim, dim, dim, boxes], 40).phase(1, body);
        [nest("restrict", &average.store(copy, coarse.copied())), nest("bring", &bring)]
    }

    /// Copies the coarse solution to the buffer; one thread per coarse cell then corrects its eight
    /// fine ones.
    fn interpolate(&self, coarse: &Self) -> [Nest; 2] {
        let copy = coarse.copy.expect("a coarser level has a buffer");
        let send = Body::default().load(coarse.vectors, coarse.cells(U, 1)).store(copy, coarse.copied());
        let fine = self.cells(U, 2);
        let correct = Body::default().load_each(copy, coarse.copied(), &coarse.star());
        let correct = correct.load_each(self.vectors, fine, &self.eight()).work(Op::Fp64, 32, 8);
        let correct =
            self.eight().iter().fold(correct, |body, &cell| body.store(self.vectors, fine.plus(cell)));
        let (dim, boxes) = (coarse.shape.dim, coarse.boxes());
        let nest =
            |what, body: &Body| Nest::new(&coarse.name(what), [dim, dim, dim, boxes], 64).phase(1, body);
        [nest("send", &send), nest("interpolate", &correct)]
    }

    /// Returns the offsets of the eight fine cells of a coarse one.
    fn eight(&self) -> [i64; 8] {
        let [i, j, k] = self.strides();
        [0, i, j, j + i, k, k + i, k + j, k + j + i]
    }
}
