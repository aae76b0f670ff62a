//! The NAS random sparse matrix: a weighted sum of outer products of sparse random vectors.
//!
//! `A = sum over i of w_i v_i v_i^T + (0.1 - shift) I`, where the weights fall from 1 to 0.1 and
//! `v_i` has random elements and 0.5 at index `i`. It is symmetric, and its condition follows from
//! the weights.

use std::sync::Arc;

use buddy_trace::pattern::List;
use rayon::prelude::*;

use crate::lcg::Lcg;

const SEED: u64 = 314_159_265;

/// Ratio of the smallest weight to the largest.
const CONDITION: f64 = 0.1;

/// Rows built together before they are appended: bounds the extra memory.
const BLOCK: usize = 4096;

/// A square CSR matrix. As in the original, `a` and `colidx` have capacity for the case without
/// duplicate elements; the rest stays zero.
pub(super) struct Matrix {
    pub(super) a: Vec<f64>,
    pub(super) colidx: List,
    pub(super) rowstr: List,
}

/// A random vector: elements as (index, value) in drawing order.
type Sparse = Vec<(i32, f64)>;

impl Matrix {
    /// Builds the matrix of `rows` rows from vectors of `nonzeros` random elements.
    pub(super) fn random(rows: usize, nonzeros: usize, shift: f64) -> Self {
        let vectors = draw_vectors(rows, nonzeros);
        let weights = weights(rows);
        let holders = holders(rows, &vectors);
        let room = rows * (nonzeros + 1) * (nonzeros + 1);
        let mut parts = Parts { a: vec![0.0; room], colidx: vec![0; room], rowstr: vec![0] };
        for block in (0..rows).step_by(BLOCK) {
            let built: Vec<Sparse> = (block..rows.min(block + BLOCK))
                .into_par_iter()
                .map(|row| build_row(row, &holders[row], &vectors, &weights, CONDITION - shift))
                .collect();
            built.iter().for_each(|row| parts.append(row));
        }
        Self { a: parts.a, colidx: Arc::new(parts.colidx), rowstr: Arc::new(parts.rowstr) }
    }

    /// Returns the sum of all elements, and the expected sum from the generating vectors.
    pub(super) fn sums(&self, nonzeros: usize, shift: f64) -> (f64, f64) {
        let rows = self.rowstr.len() - 1;
        let squares = draw_vectors(rows, nonzeros).into_iter().zip(weights(rows)).map(|(vector, weight)| {
            let sum: f64 = vector.iter().map(|(_, value)| value).sum();
            weight * sum * sum
        });
        (self.a.iter().sum(), squares.sum::<f64>() + rows as f64 * (CONDITION - shift))
    }

    /// Computes `out = A v`.
    pub(super) fn times(&self, v: &[f64], out: &mut [f64]) {
        out[..self.rowstr.len() - 1]
            .par_iter_mut()
            .zip(self.rowstr.par_windows(2))
            .with_min_len(256)
            .for_each(|(out, ends)| {
                let span = ends[0] as usize..ends[1] as usize;
                let elements = self.a[span.clone()].iter().zip(&self.colidx[span]);
                *out = elements.map(|(a, &column)| a * v[column as usize]).sum();
            });
    }
}

/// A matrix under construction.
struct Parts {
    a: Vec<f64>,
    colidx: Vec<i32>,
    rowstr: Vec<i32>,
}

impl Parts {
    fn append(&mut self, row: &Sparse) {
        let start = self.rowstr[self.rowstr.len() - 1] as usize;
        for (slot, &(column, value)) in (start..).zip(row) {
            (self.colidx[slot], self.a[slot]) = (column, value);
        }
        self.rowstr.push((start + row.len()) as i32);
    }
}

/// Draws each vector's indices and values from one sequence, skipping repeats and indices outside
/// the matrix.
fn draw_vectors(rows: usize, nonzeros: usize) -> Vec<Sparse> {
    let mut random = Lcg::new(SEED);
    random.draw();
    let span = rows.next_power_of_two() as f64;
    let mut draw = |diagonal: usize| {
        let mut vector = Sparse::with_capacity(nonzeros + 1);
        while vector.len() < nonzeros {
            let value = random.draw();
            let place = (span * random.draw()) as i32;
            if (place as usize) < rows && vector.iter().all(|(taken, _)| *taken != place) {
                vector.push((place, value));
            }
        }
        match vector.iter_mut().find(|(place, _)| *place as usize == diagonal) {
            Some((_, value)) => *value = 0.5,
            None => vector.push((diagonal as i32, 0.5)),
        }
        vector
    };
    (0..rows).map(&mut draw).collect()
}

/// Returns weights falling from 1 by a constant ratio, reaching [`CONDITION`] after the last.
fn weights(rows: usize) -> Vec<f64> {
    let ratio = CONDITION.powf(1.0 / rows as f64);
    std::iter::successors(Some(1.0), |weight| Some(weight * ratio)).take(rows).collect()
}

/// Returns, per row, the vectors with an element there and its value.
fn holders(rows: usize, vectors: &[Sparse]) -> Vec<Sparse> {
    let mut holders = vec![Sparse::new(); rows];
    for (index, vector) in vectors.iter().enumerate() {
        for &(place, value) in vector {
            holders[place as usize].push((index as i32, value));
        }
    }
    holders
}

/// Sums the products of `row` in vector order, sorted by column.
fn build_row(row: usize, holders: &Sparse, vectors: &[Sparse], weights: &[f64], diagonal: f64) -> Sparse {
    let mut products = Sparse::with_capacity(holders.len() * holders.len());
    for &(index, here) in holders {
        let scale = weights[index as usize] * here;
        products.extend(vectors[index as usize].iter().map(|&(column, value)| {
            let own = column as usize == row && index as usize == row;
            (column, value * scale + if own { diagonal } else { 0.0 })
        }));
    }
    // Stable, so that products of one column are added in vector order.
    products.sort_by_key(|(column, _)| *column);
    products.dedup_by(|next, sum| {
        let same = next.0 == sum.0;
        if same {
            sum.1 += next.1;
        }
        same
    });
    products
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrix_is_symmetric_with_sorted_rows() {
        let matrix = Matrix::random(300, 5, 10.0);
        let element = |row: usize, column: usize| {
            let span = matrix.rowstr[row] as usize..matrix.rowstr[row + 1] as usize;
            matrix.colidx[span.clone()]
                .binary_search(&(column as i32))
                .map_or(0.0, |at| matrix.a[span.start + at])
        };
        for row in 0..300 {
            assert!(element(row, row) < 0.0, "the shift dominates the diagonal");
            for column in 0..row {
                assert!((element(row, column) - element(column, row)).abs() < 1e-15);
            }
        }
    }

    #[test]
    fn times_sums_each_row() {
        let matrix = Matrix {
            a: vec![2.0, 3.0, 4.0, 0.0],
            colidx: List::new(vec![1, 0, 1, 0]),
            rowstr: List::new(vec![0, 1, 3]),
        };
        let mut out = [0.0; 3];
        matrix.times(&[5.0, 7.0, 9.0], &mut out);
        assert_eq!(out, [14.0, 43.0, 0.0]);
    }
}
