//! Cuts the rows of a matrix into tiles.

use std::ops::Range;

use super::{
    CsrJoin,
    pack::Segment,
    tile::{SEGMENT_ELEMENTS, TILE_SEGMENTS},
};

/// The rows of a tile, or some segments of one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cut {
    rows: Range<u32>,
    /// The row's segments in this tile, if the row lies in several.
    pieces: Option<Range<usize>>,
    /// `CsrTile::part`.
    pub(super) part: u32,
}

/// Returns the segments of a row of `elements` elements. An empty row has one.
fn pieces(elements: usize) -> usize {
    elements.div_ceil(SEGMENT_ELEMENTS).max(1)
}

/// Returns segment `piece` of a row. Lengths differ by at most one; longer segments come first.
fn segment(row: u32, elements: Range<usize>, piece: usize) -> Segment {
    let count = pieces(elements.len());
    let (each, longer) = (elements.len() / count, elements.len() % count);
    let begin = elements.start + piece * each + piece.min(longer);
    Segment { row, begin, elements: each + usize::from(piece < longer) }
}

/// Cuts all rows; also returns the rows that lie in several tiles.
pub(super) fn cut(starts: &[u64]) -> (Vec<Cut>, Vec<CsrJoin>) {
    let (mut cuts, mut joins, mut parts) = (Vec::new(), Vec::new(), 0);
    let (mut first, mut used) = (0, 0);
    let flush = |cuts: &mut Vec<Cut>, first: u32, row: u32| {
        if first < row {
            cuts.push(Cut { rows: first..row, pieces: None, part: 0 });
        }
    };
    for (row, pair) in starts.windows(2).enumerate() {
        let (row, count) = (row as u32, pieces((pair[1] - pair[0]) as usize));
        if used + count > TILE_SEGMENTS {
            flush(&mut cuts, first, row);
            (first, used) = (row, 0);
        }
        used += count;
        if count > TILE_SEGMENTS {
            let tiles = count.div_ceil(TILE_SEGMENTS);
            joins.push(CsrJoin { row, first: parts, parts: tiles as u32 });
            for tile in 0..tiles {
                parts += 1;
                let begin = tile * TILE_SEGMENTS;
                let pieces = Some(begin..count.min(begin + TILE_SEGMENTS));
                cuts.push(Cut { rows: row..row + 1, pieces, part: parts });
            }
            (first, used) = (row + 1, 0);
        }
    }
    flush(&mut cuts, first, starts.len() as u32 - 1);
    (cuts, joins)
}

impl Cut {
    /// Returns the tile's segments, in row order.
    pub(super) fn segments(&self, starts: &[u64]) -> Vec<Segment> {
        let elements = |row: u32| starts[row as usize] as usize..starts[row as usize + 1] as usize;
        let all = self.rows.clone().flat_map(|row| {
            let elements = elements(row);
            let pieces = self.pieces.clone().unwrap_or(0..pieces(elements.len()));
            pieces.map(move |piece| segment(row, elements.clone(), piece))
        });
        all.collect()
    }
}
