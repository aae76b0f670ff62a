//! Sparse matrices in compressed rows (CSR), packed for products: read-only, every bit kept.
//!
//! Rows are cut into segments of at most 64 elements, and segments into tiles of at most 128. A
//! tile has the bits per column and per value that its elements need: offsets from a base, or
//! indices in a small dictionary of distances from the diagonal, or of values. Elements are decoded
//! alone, so that a GPU thread sums a segment without waiting for others.

mod bits;
mod cut;
mod pack;
mod product;
mod real;
#[cfg(test)]
mod tests;
mod tile;

use rayon::prelude::*;
pub use real::Real;
pub use tile::{CsrTile, SEGMENT_ELEMENTS, TILE_SEGMENTS};

use crate::Error;

/// Columns that a product takes at most.
pub const CSR_COLUMNS: usize = 8;
/// Tiles that a thread packs at a time.
const GROUP: usize = 64;

/// A row that lies in several tiles, as the kernels take it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct CsrJoin {
    /// The row.
    pub row: u32,
    /// The number of its first part.
    pub first: u32,
    /// Its parts, in order.
    pub parts: u32,
}

impl CsrJoin {
    /// Returns the bytes of the struct.
    pub fn to_bytes(&self) -> [u8; size_of::<Self>()] {
        let words = [self.row, self.first, self.parts].map(u32::to_le_bytes);
        words.as_flattened().try_into().expect("three words")
    }
}

/// A packed sparse matrix of fp32 or fp64 values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Csr {
    rows: u32,
    columns: u32,
    elements: u64,
    value_bytes: u32,
    tiles: Vec<CsrTile>,
    joins: Vec<CsrJoin>,
    payload: Vec<u8>,
}

/// The arrays of a plain matrix: starts of rows, columns, values.
pub type CsrArrays<V> = (Vec<u64>, Vec<u32>, Vec<V>);

fn invalid(what: &str) -> Error {
    Error::Csr(what.to_owned())
}

impl Csr {
    /// Packs a matrix. `starts` has the first element of each row, and the number of elements.
    /// Columns of a row may be in any order and occur twice.
    ///
    /// # Errors
    /// [`Error::Csr`] for arrays that are no matrix of `columns` columns.
    pub fn pack<V: Real>(columns: u32, starts: &[u64], indices: &[u32], values: &[V]) -> Result<Self, Error> {
        check(columns, starts, indices, values.len())?;
        let (cuts, joins) = cut::cut(starts);
        let packed: Vec<(Vec<CsrTile>, Vec<u8>)> = cuts
            .par_chunks(GROUP)
            .map(|cuts| {
                let mut payload = Vec::new();
                let tile = |cut: &cut::Cut| CsrTile {
                    part: cut.part,
                    ..pack::tile(cut.segments(starts), indices, values, &mut payload)
                };
                let tiles = cuts.iter().map(tile).collect();
                (tiles, payload)
            })
            .collect();
        let (mut tiles, mut payload) = (Vec::with_capacity(cuts.len()), Vec::new());
        payload.reserve_exact(packed.iter().map(|(_, payload)| payload.len()).sum::<usize>() + bits::SLACK);
        for (some, bytes) in packed {
            let before = payload.len() as u64;
            tiles.extend(some.into_iter().map(|tile| CsrTile { payload: before + tile.payload, ..tile }));
            payload.extend(bytes);
        }
        payload.resize(payload.len() + bits::SLACK, 0);
        let (rows, elements) = (starts.len() as u32 - 1, values.len() as u64);
        Ok(Self { rows, columns, elements, value_bytes: V::BYTES, tiles, joins, payload })
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// Returns the number of columns.
    pub fn columns(&self) -> u32 {
        self.columns
    }

    /// Returns the number of stored elements.
    pub fn elements(&self) -> u64 {
        self.elements
    }

    /// Returns the bytes of a value: 4 or 8.
    pub fn value_bytes(&self) -> u32 {
        self.value_bytes
    }

    /// Returns the tiles.
    pub fn tiles(&self) -> &[CsrTile] {
        &self.tiles
    }

    /// Returns the rows that lie in several tiles.
    pub fn joins(&self) -> &[CsrJoin] {
        &self.joins
    }

    /// Returns the payloads of all tiles, with padding behind the last.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Returns the parts of all rows that lie in several tiles.
    pub fn parts(&self) -> u32 {
        self.joins.last().map_or(0, |join| join.first + join.parts)
    }

    /// Returns the bytes of the packed matrix.
    pub fn bytes(&self) -> u64 {
        (size_of_val(&self.tiles[..]) + size_of_val(&self.joins[..]) + self.payload.len()) as u64
    }

    /// Returns the bytes of the plain matrix with 32-bit columns, and with 32-bit starts where these
    /// suffice.
    pub fn plain_bytes(&self) -> u64 {
        let start = if self.elements < 1 << 31 { 4 } else { 8 };
        self.elements * u64::from(4 + self.value_bytes) + (u64::from(self.rows) + 1) * start
    }

    /// Returns the plain matrix.
    ///
    /// # Errors
    /// [`Error::Csr`] for another type of values.
    pub fn unpack<V: Real>(&self) -> Result<CsrArrays<V>, Error> {
        self.check_type::<V>()?;
        let mut starts = vec![0; self.rows as usize + 1];
        self.each_segment::<V>(|row, elements| starts[row as usize + 1] += elements.len() as u64);
        for row in 1..starts.len() {
            starts[row] += starts[row - 1];
        }
        let (mut next, elements) = (starts.clone(), self.elements as usize);
        let (mut indices, mut values) = (vec![0; elements], vec![V::default(); elements]);
        self.each_segment(|row, elements| {
            for (column, value) in elements {
                let at = &mut next[row as usize];
                (indices[*at as usize], values[*at as usize]) = (column, value);
                *at += 1;
            }
        });
        Ok((starts, indices, values))
    }

    /// Calls `with` for all segments with their rows, in the order of the plain matrix.
    fn each_segment<V: Real>(&self, mut with: impl FnMut(u32, &mut dyn ExactSizeIterator<Item = (u32, V)>)) {
        for &tile in &self.tiles {
            let arrays = tile.arrays::<V>(&self.payload);
            let rows = (0..usize::from(tile.segments)).map(|segment| (arrays.row(tile, segment), segment));
            let mut rows: Vec<(u32, usize)> = rows.collect();
            rows.sort_unstable();
            for (row, segment) in rows {
                let longer = arrays.counts().partition_point(|&count| usize::from(count) > segment);
                let mut element = segment;
                with(
                    row,
                    &mut arrays.counts()[..longer].iter().map(|&count| {
                        let at = element;
                        element += usize::from(count);
                        (arrays.column(tile, at, row), arrays.value(tile, at))
                    }),
                );
            }
        }
    }

    /// Computes y = A x for up to eight columns; element `j` of row `i` of x and y is number
    /// `i * columns + j`. Every row of at most 64 elements is added in its order, without fused
    /// operations; longer rows by segments.
    ///
    /// # Errors
    /// [`Error::Csr`] for another type of values, or other lengths.
    pub fn multiply<V: Real>(&self, x: &[V], y: &mut [V], columns: usize) -> Result<(), Error> {
        self.check_type::<V>()?;
        if x.len() != self.columns as usize * columns || y.len() != self.rows as usize * columns {
            return Err(invalid("x must have a row per column of the matrix, y one per row"));
        }
        match columns {
            1 => product::multiply::<V, 1>(self, x, y),
            2 => product::multiply::<V, 2>(self, x, y),
            3 => product::multiply::<V, 3>(self, x, y),
            4 => product::multiply::<V, 4>(self, x, y),
            5 => product::multiply::<V, 5>(self, x, y),
            6 => product::multiply::<V, 6>(self, x, y),
            7 => product::multiply::<V, 7>(self, x, y),
            8 => product::multiply::<V, 8>(self, x, y),
            _ => return Err(invalid("a product takes 1 to 8 columns")),
        }
        Ok(())
    }

    /// Computes y = Aᵀ x for a vector, on one thread. Elements of y are added in the order of the
    /// rows.
    ///
    /// # Errors
    /// As for [`multiply`](Self::multiply).
    pub fn multiply_transposed<V: Real>(&self, x: &[V], y: &mut [V]) -> Result<(), Error> {
        self.check_type::<V>()?;
        if x.len() != self.rows as usize || y.len() != self.columns as usize {
            return Err(invalid("x must have an element per row of the matrix, y one per column"));
        }
        y.fill(V::default());
        self.each_segment::<V>(|row, elements| {
            elements.for_each(|(column, value)| y[column as usize] += value * x[row as usize]);
        });
        Ok(())
    }

    fn check_type<V: Real>(&self) -> Result<(), Error> {
        if self.value_bytes == V::BYTES {
            return Ok(());
        }
        Err(Error::Csr(format!("values have {} bytes, not {}", self.value_bytes, V::BYTES)))
    }
}

/// Checks the arrays of a matrix.
fn check(columns: u32, starts: &[u64], indices: &[u32], values: usize) -> Result<(), Error> {
    if starts.first() != Some(&0) || starts.last() != Some(&(values as u64)) || indices.len() != values {
        return Err(invalid("starts must lead from 0 to the number of columns and of values"));
    }
    if starts.len() > u32::MAX as usize {
        return Err(invalid("more than 2^32 - 2 rows"));
    }
    if starts.windows(2).any(|pair| pair[0] > pair[1]) {
        return Err(invalid("starts must not decrease"));
    }
    match indices.par_iter().find_any(|&&column| column >= columns) {
        Some(column) => Err(Error::Csr(format!("column {column} of a matrix with {columns} columns"))),
        None => Ok(()),
    }
}
