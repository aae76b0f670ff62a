//! Products on the CPU, in the order of additions of the kernels.

use std::ops::Range;

use rayon::prelude::*;

use super::{
    Csr, Real,
    tile::{CsrTile, TILE_SEGMENTS},
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
        let mut sums = [[V::default(); K]; TILE_SEGMENTS];
        for &tile in &matrix.tiles[group.tiles] {
            add_tile(tile, &matrix.payload, x, &mut sums, |row, sum| {
                add(&mut group.y[(row - group.first_row) as usize], sum);
            });
        }
    });
}

fn add<V: Real, const K: usize>(to: &mut [V; K], from: &[V; K]) {
    to.iter_mut().zip(from).for_each(|(to, &from)| *to += from);
}

/// Multiplies a tile by x and passes its rows' sums to `emit`, one for each segment; one in all for
/// a part of a row.
fn add_tile<V: Real, const K: usize>(
    tile: CsrTile,
    payload: &[u8],
    x: &[[V; K]],
    sums: &mut [[V; K]; TILE_SEGMENTS],
    mut emit: impl FnMut(u32, &[V; K]),
) {
    let (arrays, mut rows) = (tile.arrays::<V>(payload), [0; TILE_SEGMENTS]);
    let segments = usize::from(tile.segments);
    for (segment, row) in rows[..segments].iter_mut().enumerate() {
        *row = arrays.row(tile, segment);
    }
    sums[..segments].fill([V::default(); K]);
    let mut element = 0;
    for &longer in arrays.counts {
        for (sum, &row) in sums.iter_mut().zip(&rows).take(usize::from(longer)) {
            let value = arrays.value::<V>(tile, element);
            let from = &x[arrays.column(tile, element, row) as usize];
            sum.iter_mut().zip(from).for_each(|(sum, &x)| *sum += value * x);
            element += 1;
        }
    }
    if tile.part == 0 {
        rows.iter().zip(sums.iter()).take(segments).for_each(|(&row, sum)| emit(row, sum));
        return;
    }
    let mut total = [V::default(); K];
    sums[..segments].iter().for_each(|sum| add(&mut total, sum));
    emit(tile.first_row, &total);
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
