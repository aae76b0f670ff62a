//! Restriction and interpolation between levels, each through a copy buffer.
//!
//! A coarse box covers exactly the fine box of the same index. The buffer stands for the copy
//! between device and host memory, where the original keeps its coarse levels.

use rayon::prelude::*;

use super::level::{Level, Shape, U, VECTORS};

/// Sets `to` of the coarse level to the averages of `from` of the fine one.
pub(super) fn restrict(fine: &Level, from: usize, coarse: &mut Level, to: usize) {
    let (shape, volume) = (fine.shape, fine.shape.volume());
    let (below, length) = (coarse.shape, coarse.shape.volume());
    let boxes = fine.vectors.par_chunks(VECTORS * volume).zip(coarse.copy.par_chunks_mut(length));
    boxes.for_each(|(data, copy)| {
        let values = &data[from * volume..(from + 1) * volume];
        for [i, j, k] in cells(below.dim) {
            let first = shape.at([2 * i - 1, 2 * j - 1, 2 * k - 1]);
            copy[below.at([i, j, k])] = eight(shape, first).map(|at| values[at]).iter().sum::<f64>() / 8.0;
        }
    });
    let boxes = coarse.vectors.par_chunks_mut(VECTORS * length).zip(coarse.copy.par_chunks(length));
    boxes.for_each(|(data, copy)| data[to * length..(to + 1) * length].copy_from_slice(copy));
}

/// Adds the coarse U, interpolated, to `keep` times the fine U.
pub(super) fn interpolate(coarse: &mut Level, fine: &mut Level, keep: f64) {
    coarse.fill_ghosts(U);
    let (shape, volume) = (fine.shape, fine.shape.volume());
    let (below, length) = (coarse.shape, coarse.shape.volume());
    let boxes = coarse.vectors.par_chunks(VECTORS * length).zip(coarse.copy.par_chunks_mut(length));
    boxes.for_each(|(data, copy)| copy.copy_from_slice(&data[U * length..(U + 1) * length]));
    let boxes = fine.vectors.par_chunks_mut(VECTORS * volume).zip(coarse.copy.par_chunks(length));
    boxes.for_each(|(data, copy)| {
        let values = &mut data[U * volume..(U + 1) * volume];
        for cell in cells(shape.dim) {
            let at = shape.at(cell);
            values[at] = keep * values[at] + blend(below, copy, cell);
        }
    });
}

/// Iterates over the cells of a box, x fastest.
fn cells(dim: usize) -> impl Iterator<Item = [usize; 3]> {
    (1..=dim).flat_map(move |k| (1..=dim).flat_map(move |j| (1..=dim).map(move |i| [i, j, k])))
}

/// Returns the eight fine cells of a coarse one.
fn eight(shape: Shape, first: usize) -> [usize; 8] {
    let (j, k) = (shape.j_stride(), shape.k_stride());
    [0, 1, j, j + 1, k, k + 1, k + j, k + j + 1].map(|offset| first + offset)
}

/// Interpolates from the coarse cell and its neighbours on the fine cell's side, a quarter each:
/// exact for linear functions.
fn blend(shape: Shape, values: &[f64], cell: [usize; 3]) -> f64 {
    let at = shape.at(cell.map(|part| part.div_ceil(2)));
    let strides = [1, shape.j_stride(), shape.k_stride()];
    let nearest: f64 = (0..3)
        .map(|axis| if cell[axis].is_multiple_of(2) { at + strides[axis] } else { at - strides[axis] })
        .map(|neighbour| values[neighbour])
        .sum();
    0.25 * (values[at] + nearest)
}
