//! Arrays over a cubic grid, with several numbers per cell, in either of two memory orders.

use crate::workload::Allocation;

/// Memory order of the components of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// C order, `u[k][j][i][m]`: the components of a cell are contiguous.
    C,
    /// Fortran order, `u(i, j, k, m)`: a whole grid per component.
    Fortran,
}

/// Orientation of the planes that tasks process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Planes {
    /// Constant `k`: rows are `j`, columns `i`.
    K,
    /// Constant `j`: rows are `k`, columns `i`.
    J,
}

/// `size` components for each cell of an `n` by `n` by `n` grid. Cells are numbered with `i`
/// fastest and `k` slowest.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    data: Vec<f64>,
    n: usize,
    size: usize,
    order: Order,
}

impl Field {
    /// Creates a zero field.
    pub(crate) fn zeros(n: usize, size: usize, order: Order) -> Self {
        Self { data: vec![0.0; n * n * n * size], n, size, order }
    }

    /// Creates an empty stand-in for a field that is moved out.
    pub(crate) fn empty() -> Self {
        Self::zeros(0, 0, Order::C)
    }

    /// Returns the cells along each side of the cube.
    pub(crate) fn side(&self) -> usize {
        self.n
    }

    /// Returns the first `S` components of a cell.
    #[inline]
    pub(crate) fn get<const S: usize>(&self, cell: usize) -> [f64; S] {
        match self.order {
            Order::C => {
                let start = cell * self.size;
                std::array::from_fn(|m| self.data[start + m])
            }
            Order::Fortran => {
                let grid = self.n * self.n * self.n;
                std::array::from_fn(|m| self.data[m * grid + cell])
            }
        }
    }

    /// Splits the field into planes that tasks may write at the same time.
    pub(crate) fn planes_mut(&mut self, planes: Planes) -> Vec<Plane<'_>> {
        let (n, size) = (self.n, self.size);
        let row = match self.order {
            Order::C => n * size,
            Order::Fortran => n,
        };
        let (chunk, steps) = match (self.order, planes) {
            (Order::C, Planes::K) => (row * n, Steps { chunk: [0, 0], offset: [1, row, size] }),
            (Order::C, Planes::J) => (row, Steps { chunk: [0, 1], offset: [1, 0, size] }),
            (Order::Fortran, Planes::K) => (row * n, Steps { chunk: [1, 0], offset: [0, row, 1] }),
            (Order::Fortran, Planes::J) => (row, Steps { chunk: [n, 1], offset: [0, 0, 1] }),
        };
        let mut all: Vec<_> = (0..n).map(|_| Plane { chunks: Vec::new(), steps }).collect();
        for (index, chunk) in self.data.chunks_mut(chunk).enumerate() {
            all[index % n].chunks.push(chunk);
        }
        all
    }

    pub(crate) fn allocation(&self, name: &'static str, site: &'static str) -> Allocation<'_> {
        Allocation::f64(name, site, &self.data)
    }
}

/// Strides: between chunks for (component, row), within a chunk for (component, row, column).
#[derive(Debug, Clone, Copy)]
struct Steps {
    chunk: [usize; 2],
    offset: [usize; 3],
}

/// One plane of a field, possibly in many chunks of memory.
pub(crate) struct Plane<'a> {
    chunks: Vec<&'a mut [f64]>,
    steps: Steps,
}

impl Plane<'_> {
    /// Returns chunk and offset of component `m` of a cell.
    #[inline]
    fn locate(&self, m: usize, row: usize, column: usize) -> (usize, usize) {
        let Steps { chunk, offset } = self.steps;
        (m * chunk[0] + row * chunk[1], m * offset[0] + row * offset[1] + column * offset[2])
    }

    /// Returns the first `S` components of a cell.
    #[inline]
    pub(crate) fn get<const S: usize>(&self, row: usize, column: usize) -> [f64; S] {
        std::array::from_fn(|m| {
            let (chunk, offset) = self.locate(m, row, column);
            self.chunks[chunk][offset]
        })
    }

    /// Stores components of a cell, beginning with component `first`.
    #[inline]
    pub(crate) fn put(&mut self, row: usize, column: usize, first: usize, values: &[f64]) {
        let (mut chunk, mut offset) = self.locate(first, row, column);
        for value in values {
            self.chunks[chunk][offset] = *value;
            chunk += self.steps.chunk[0];
            offset += self.steps.offset[0];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_cover_every_component_in_both_orders() {
        let n = 4;
        for order in [Order::C, Order::Fortran] {
            for planes in [Planes::K, Planes::J] {
                let mut field = Field::zeros(n, 3, order);
                for (index, plane) in field.planes_mut(planes).iter_mut().enumerate() {
                    for (row, column) in (0..n).flat_map(|row| (0..n).map(move |column| (row, column))) {
                        let (k, j) = if planes == Planes::K { (index, row) } else { (row, index) };
                        let cell = ((k * n + j) * n + column) as f64;
                        plane.put(row, column, 0, &[cell, cell + 0.25]);
                        plane.put(row, column, 2, &[cell + 0.5]);
                        assert_eq!(plane.get(row, column), [cell, cell + 0.25, cell + 0.5]);
                    }
                }
                for cell in 0..n * n * n {
                    assert_eq!(field.get(cell), [0.0, 0.25, 0.5].map(|m| cell as f64 + m));
                }
            }
        }
    }

    #[test]
    fn orders_have_different_layouts() {
        let stored = |order| {
            let mut field = Field::zeros(2, 2, order);
            field.planes_mut(Planes::K)[0].put(0, 1, 0, &[7.0, 8.0]);
            (field.data[2..4].to_vec(), field.data[1], field.data[9])
        };
        assert_eq!(stored(Order::C), (vec![7.0, 8.0], 0.0, 0.0));
        assert_eq!(stored(Order::Fortran), (vec![0.0, 0.0], 7.0, 8.0));
    }
}
