//! One level: boxes of cells, each with all of its vectors in sequence.
//!
//! A vector of a box is a cube with one layer of ghost cells. Rows and planes are padded, so memory
//! alternates between solutions, coefficients, ghosts and padding.

use rayon::prelude::*;

use super::problem;

/// Vectors per box, in memory order: temp, utrue, residual, f, u, alpha, beta_i, beta_j, beta_k,
/// dinv, l1inv and valid. The last two are used only during setup.
pub(super) const VECTORS: usize = 12;
/// Indices of vectors that are used by name.
pub(super) const TEMP: usize = 0;
pub(super) const UTRUE: usize = 1;
pub(super) const RESIDUAL: usize = 2;
pub(super) const F: usize = 3;
pub(super) const U: usize = 4;

/// Shape of a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// Boxes along each axis.
    pub(super) boxes: usize,
    /// Cells of a box along each axis.
    pub(super) dim: usize,
}

impl Shape {
    /// Returns the cells along each axis.
    pub(super) fn side(self) -> usize {
        self.boxes * self.dim
    }

    /// Returns the cell size; the level is the unit cube.
    pub(super) fn h(self) -> f64 {
        1.0 / self.side() as f64
    }

    pub(super) fn j_stride(self) -> usize {
        (self.dim + 2).next_multiple_of(4)
    }

    pub(super) fn k_stride(self) -> usize {
        (self.j_stride() * (self.dim + 2)).next_multiple_of(8)
    }

    /// Returns the doubles in one vector of one box.
    pub(super) fn volume(self) -> usize {
        self.k_stride() * (self.dim + 2)
    }

    /// Returns the index of a cell in a vector; ghost cells are at 0 and `dim` + 1.
    pub(super) fn at(self, [i, j, k]: [usize; 3]) -> usize {
        i + self.j_stride() * j + self.k_stride() * k
    }

    /// Returns the doubles in the level's array, its exchange buffer and, except for the finest
    /// level, its copy buffer.
    pub(super) fn lengths(self, finest: bool) -> [usize; 3] {
        let boxes = self.boxes.pow(3);
        let copy = if finest { 0 } else { boxes * self.volume() };
        [boxes * VECTORS * self.volume(), boxes * 6 * self.dim.pow(2), copy]
    }

    /// Returns the next coarser level, if any.
    pub(super) fn coarser(self) -> Option<Self> {
        (self.dim > 2).then_some(Self { dim: self.dim / 2, ..self })
    }

    /// Returns the coordinates of box `index`.
    fn box_coordinates(self, index: usize) -> [usize; 3] {
        [index % self.boxes, index / self.boxes % self.boxes, index / self.boxes / self.boxes]
    }

    /// Returns the starts of the rows of cells, without ghosts.
    pub(super) fn rows(self) -> impl Iterator<Item = usize> {
        (1..=self.dim).flat_map(move |k| (1..=self.dim).map(move |j| self.at([1, j, k])))
    }
}

/// A level and its buffers.
pub(super) struct Level {
    pub(super) shape: Shape,
    pub(super) vectors: Vec<f64>,
    /// Send buffer of each box's six faces.
    pub(super) exchange: Vec<f64>,
    /// Buffer of one vector between this level and the finer one, which may be in another memory.
    pub(super) copy: Vec<f64>,
}

impl Level {
    /// Creates a level with its coefficients, the true solution and its right-hand side.
    pub(super) fn new(shape: Shape, finest: bool) -> Self {
        let [vectors, exchange, copy] = shape.lengths(finest).map(|length| vec![0.0; length]);
        let mut level = Self { shape, vectors, exchange, copy };
        level.each_box(|index, mut vectors| {
            set_coefficients(shape, shape.box_coordinates(index), vectors.each_mut());
            set_diagonals(shape, vectors);
        });
        level
    }

    /// Runs `work` on every box with its number and its vectors.
    pub(super) fn each_box(&mut self, work: impl Fn(usize, [&mut [f64]; VECTORS]) + Sync) {
        let volume = self.shape.volume();
        self.vectors.par_chunks_mut(VECTORS * volume).enumerate().for_each(|(index, data)| {
            work(index, split(data, volume));
        });
    }

    /// Returns the largest magnitude in a vector, without ghosts.
    pub(super) fn norm(&self, vector: usize) -> f64 {
        self.largest(|vectors, at| vectors[vector][at])
    }

    /// Returns the largest magnitude of a function of a cell's vectors, independent of thread
    /// order.
    pub(super) fn largest(&self, value: impl Fn(&[&[f64]], usize) -> f64 + Sync) -> f64 {
        let (shape, volume) = (self.shape, self.shape.volume());
        let boxes = self.vectors.par_chunks(VECTORS * volume).map(|data| {
            let vectors: Vec<&[f64]> = data.chunks_exact(volume).collect();
            let cells = shape.rows().flat_map(|row| row..row + shape.dim);
            cells.fold(0.0, |most: f64, at| most.max(value(&vectors, at).abs()))
        });
        boxes.reduce(|| 0.0, f64::max)
    }

    /// Fills a vector's ghost cells: from neighbouring boxes, and outside the cube so that its
    /// surface is zero.
    pub(super) fn fill_ghosts(&mut self, vector: usize) {
        let (shape, volume, square) = (self.shape, self.shape.volume(), self.shape.dim.pow(2));
        let boxes = self.vectors.par_chunks(VECTORS * volume);
        boxes.zip(self.exchange.par_chunks_mut(6 * square)).for_each(|(data, faces)| {
            let values = &data[vector * volume..(vector + 1) * volume];
            for (face, buffer) in faces.chunks_exact_mut(square).enumerate() {
                let inside = if face % 2 == 0 { 1 } else { shape.dim };
                on_face(shape, face, inside, |at, n| buffer[n] = values[at]);
            }
        });
        let exchange = &self.exchange;
        self.vectors.par_chunks_mut(VECTORS * volume).enumerate().for_each(|(index, data)| {
            let values = &mut data[vector * volume..(vector + 1) * volume];
            for face in 0..6 {
                let (from, sign) = match neighbour_box(shape, index, face) {
                    Some(neighbour) => (6 * neighbour + (face ^ 1), 1.0),
                    None => (6 * index + face, -1.0),
                };
                let buffer = &exchange[from * square..(from + 1) * square];
                let ghost = if face % 2 == 0 { 0 } else { shape.dim + 1 };
                on_face(shape, face, ghost, |at, n| values[at] = sign * buffer[n]);
            }
        });
    }
}

/// Splits a box's data into its vectors.
fn split(data: &mut [f64], volume: usize) -> [&mut [f64]; VECTORS] {
    let mut vectors = data.chunks_exact_mut(volume);
    std::array::from_fn(|_| vectors.next().unwrap_or_default())
}

/// Returns the neighbouring box across a face.
fn neighbour_box(shape: Shape, index: usize, face: usize) -> Option<usize> {
    let (axis, stride) = (face / 2, shape.boxes.pow((face / 2) as u32));
    let place = shape.box_coordinates(index)[axis];
    match face % 2 {
        0 => (place > 0).then(|| index - stride),
        _ => (place + 1 < shape.boxes).then(|| index + stride),
    }
}

/// Visits the layer of cells at `depth` along a face's axis, with each cell's index in the face.
fn on_face(shape: Shape, face: usize, depth: usize, mut visit: impl FnMut(usize, usize)) {
    for q in 0..shape.dim {
        for p in 0..shape.dim {
            let cell = match face / 2 {
                0 => [depth, p + 1, q + 1],
                1 => [p + 1, depth, q + 1],
                _ => [p + 1, q + 1, depth],
            };
            visit(shape.at(cell), p + shape.dim * q);
        }
    }
}

/// Sets the coefficients, ghost cells included, and the true solution with its right-hand side.
fn set_coefficients(shape: Shape, place: [usize; 3], vectors: [&mut &mut [f64]; VECTORS]) {
    let [_, utrue, _, f, _, alpha, beta_i, beta_j, beta_k, _, _, valid] = vectors;
    let (h, dim) = (shape.h(), shape.dim);
    for (k, j, i) in cells_and_ghosts(dim) {
        let at = shape.at([i, j, k]);
        let low = [i, j, k].map(|cell| cell as f64 - 1.0);
        let corner: [f64; 3] = std::array::from_fn(|axis| h * ((place[axis] * dim) as f64 + low[axis]));
        let middle = corner.map(|x| x + 0.5 * h);
        alpha[at] = problem::ALPHA;
        beta_i[at] = problem::beta([corner[0], middle[1], middle[2]]);
        beta_j[at] = problem::beta([middle[0], corner[1], middle[2]]);
        beta_k[at] = problem::beta([middle[0], middle[1], corner[2]]);
        utrue[at] = problem::solution(middle);
        f[at] = problem::right_hand_side(middle);
        valid[at] = f64::from(middle.iter().all(|x| (0.0..1.0).contains(x)));
    }
}

fn cells_and_ghosts(dim: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..dim + 2).flat_map(move |k| (0..dim + 2).flat_map(move |j| (0..dim + 2).map(move |i| (k, j, i))))
}

/// Sets the inverse diagonal, and the inverse of the diagonal plus half of the off-diagonals.
fn set_diagonals(shape: Shape, vectors: [&mut [f64]; VECTORS]) {
    let [_, _, _, _, _, alpha, beta_i, beta_j, beta_k, dinv, l1inv, valid] = vectors;
    let scale = shape.h().powi(-2);
    for at in shape.rows().flat_map(|row| row..row + shape.dim) {
        let (mut diagonal, mut neighbour_box) = (alpha[at], 0.0);
        for (beta, stride) in [(&beta_i, 1), (&beta_j, shape.j_stride()), (&beta_k, shape.k_stride())] {
            for (face, neighbour) in [(at, at - stride), (at + stride, at + stride)] {
                // A ghost outside the cube is the negative of the cell, and counts twice on the
                // diagonal.
                diagonal += scale * beta[face] * (2.0 - valid[neighbour]);
                neighbour_box += scale * beta[face] * valid[neighbour];
            }
        }
        dinv[at] = 1.0 / diagonal;
        l1inv[at] = 1.0 / (diagonal + 0.5 * neighbour_box);
    }
}
