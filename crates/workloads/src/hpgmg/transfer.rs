//! Between levels: averages go down, interpolated values come up, each through a copy buffer.
//!
//! A coarse box covers exactly the fine box with the same number. The buffer stands for the copy between device
//! and host memory, where the original keeps its coarse levels.

use rayon::prelude::*;

use super::level::{Level, Shape, U, VECTORS};

/// Numbers the cells of a box from `[0, 0, 0]`, x fastest.
fn cells(dim: usize) -> impl Iterator<Item = [usize; 3]> {
    (0..dim.pow(3)).map(move |n| [n % dim, n / dim % dim, n / dim / dim])
}

/// Sets `to` of the coarse level to the averages of `from` of the fine one.
pub(super) fn restrict(fine: &Level, from: usize, coarse: &mut Level, to: usize) {
    let (shape, volume) = (fine.shape, fine.shape.volume());
    let boxes = fine.vectors.par_chunks(VECTORS * volume);
    boxes.zip(coarse.copy.par_chunks_mut(coarse.shape.dim.pow(3))).for_each(|(data, buffer)| {
        let values = &data[from * volume..(from + 1) * volume];
        for (mean, [i, j, k]) in buffer.iter_mut().zip(cells(shape.dim / 2)) {
            let first = shape.at([2 * i + 1, 2 * j + 1, 2 * k + 1]);
            *mean = eight(shape, first).map(|at| values[at]).iter().sum::<f64>() / 8.0;
        }
    });
    let (shape, volume, copy) = (coarse.shape, coarse.shape.volume(), &coarse.copy);
    let boxes = coarse.vectors.par_chunks_mut(VECTORS * volume);
    boxes.zip(copy.par_chunks(shape.dim.pow(3))).for_each(|(data, buffer)| {
        let values = &mut data[to * volume..(to + 1) * volume];
        for (&mean, [i, j, k]) in buffer.iter().zip(cells(shape.dim)) {
            values[shape.at([i + 1, j + 1, k + 1])] = mean;
        }
    });
}

/// The eight fine cells of a coarse one, from the first.
fn eight(shape: Shape, first: usize) -> [usize; 8] {
    let (j, k) = (shape.j_stride(), shape.k_stride());
    [0, 1, j, j + 1, k, k + 1, k + j, k + j + 1].map(|offset| first + offset)
}

/// Adds the coarse U, interpolated, to `keep` times the fine U.
pub(super) fn interpolate(coarse: &mut Level, fine: &mut Level, keep: f64) {
    coarse.fill_ghosts(U);
    let (shape, volume) = (fine.shape, fine.shape.volume());
    let from = &coarse.vectors;
    let boxes =
        fine.copy.par_chunks_mut(shape.dim.pow(3)).zip(from.par_chunks(VECTORS * coarse.shape.volume()));
    boxes.for_each(|(buffer, data)| {
        let values = &data[U * coarse.shape.volume()..(U + 1) * coarse.shape.volume()];
        for (value, cell) in buffer.iter_mut().zip(cells(shape.dim)) {
            *value = blend(coarse.shape, values, cell);
        }
    });
    let copy = &fine.copy;
    let boxes = fine.vectors.par_chunks_mut(VECTORS * volume).zip(copy.par_chunks(shape.dim.pow(3)));
    boxes.for_each(|(data, buffer)| {
        let values = &mut data[U * volume..(U + 1) * volume];
        for (&value, [i, j, k]) in buffer.iter().zip(cells(shape.dim)) {
            let at = shape.at([i + 1, j + 1, k + 1]);
            values[at] = keep * values[at] + value;
        }
    });
}

/// A quarter each of the coarse cell and of its neighbours on the fine cell's side: exact for linear functions.
fn blend(shape: Shape, values: &[f64], cell: [usize; 3]) -> f64 {
    let at = shape.at(cell.map(|part| part / 2 + 1));
    let strides = [1, shape.j_stride(), shape.k_stride()];
    let nearest: f64 = (0..3)
        .map(|axis| if cell[axis].is_multiple_of(2) { at - strides[axis] } else { at + strides[axis] })
        .map(|neighbour| values[neighbour])
        .sum();
    0.25 * (values[at] + nearest)
}
