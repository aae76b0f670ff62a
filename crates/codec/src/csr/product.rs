//! Products on the CPU, in the order of additions of the kernels.

use std::ops::Range;

use rayon::prelude::*;

use super::{
    Csr, Real,
    tile::{CsrTile, SEGMENT_ELEMENTS, TILE_SEGMENTS},
};

/// Tiles that a thread takes at a time.
const GROUP: usize = 64;

/// Tiles that write to rows of their own.
struct Group<'a, V> {
    tiles: Range<usize>,
    first_row: u32,
    y: &'a mut [V],
}

/// Computes y = A x for `K` columns.
pub(super) fn multiply<V: Real, const K: usize>(matrix: &Csr, x: &[V], y: &mut [V]) {
    y.fill(V::default());
    let (x, y) = (x.as_chunks::<K>().0, y.as_chunks_mut::<K>().0);
    groups(&matrix.tiles, y).into_par_iter().for_each(|group| {
        let mut scratch = Scratch::new();
        for &tile in &matrix.tiles[group.tiles] {
            scratch.add_tile(tile, &matrix.payload, x, |row, sum| {
                add(&mut group.y[(row - group.first_row) as usize], sum);
            });
        }
    });
}

fn add<V: Real, const K: usize>(to: &mut [V; K], from: &[V; K]) {
    to.iter_mut().zip(from).for_each(|(to, &from)| *to += from);
}

/// Buffers of a thread: the decoded elements of a tile, and the sums of its segments.
struct Scratch<V, const K: usize> {
    columns: Vec<u32>,
    values: Vec<V>,
    sums: [[V; K]; TILE_SEGMENTS],
}

impl<V: Real, const K: usize> Scratch<V, K> {
    fn new() -> Self {
        let elements = TILE_SEGMENTS * SEGMENT_ELEMENTS;
        let (columns, values) = (vec![0; elements], vec![V::default(); elements]);
        Self { columns, values, sums: [[V::default(); K]; TILE_SEGMENTS] }
    }

    /// Multiplies a tile by x and passes its rows' sums to `emit`, one for each segment; one in all
    /// for a part of a row.
    fn add_tile(&mut self, tile: CsrTile, payload: &[u8], x: &[[V; K]], mut emit: impl FnMut(u32, &[V; K])) {
        let (arrays, mut rows) = (tile.arrays::<V>(payload), [0; TILE_SEGMENTS]);
        let (segments, elements) = (usize::from(tile.segments), usize::from(tile.elements));
        for (segment, row) in rows[..segments].iter_mut().enumerate() {
            *row = arrays.row(tile, segment);
        }
        let base = if tile.is_relative() { rows } else { [0; TILE_SEGMENTS] };
        arrays.decode(tile, &mut self.columns[..elements], &mut self.values[..elements]);
        let sums = &mut self.sums[..segments];
        sums.fill([V::default(); K]);
        let (mut columns, mut values) = (&self.columns[..elements], &self.values[..elements]);
        for &longer in arrays.counts() {
            let (now, rest) = values.split_at(usize::from(longer));
            for (((sum, base), column), &value) in sums.iter_mut().zip(&base).zip(columns).zip(now) {
                let from = &x[base.wrapping_add(*column) as usize];
                sum.iter_mut().zip(from).for_each(|(sum, &x)| *sum += value * x);
            }
            (columns, values) = (&columns[usize::from(longer)..], rest);
        }
        if tile.part == 0 {
            rows.iter().zip(sums.iter()).for_each(|(&row, sum)| emit(row, sum));
            return;
        }
        let mut total = [V::default(); K];
        sums.iter().for_each(|sum| add(&mut total, sum));
        emit(tile.first_row, &total);
    }
}

/// Splits the rows of `y` among groups of tiles. All parts of a row are in one group.
fn groups<'a, V>(tiles: &[CsrTile], mut y: &'a mut [V]) -> Vec<Group<'a, V>> {
    let mut groups = Vec::new();
    let mut begin = 0;
    while begin < tiles.len() {
        let mut end = (begin + GROUP).min(tiles.len());
        let row = |at: usize| tiles[at].first_row;
        while end < tiles.len() && row(end) == row(end - 1) {
            end += 1;
        }
        let rows = if end < tiles.len() { (row(end) - row(begin)) as usize } else { y.len() };
        let (mine, rest) = y.split_at_mut(rows);
        groups.push(Group { tiles: begin..end, first_row: row(begin), y: mine });
        (y, begin) = (rest, end);
    }
    groups
}
