//! How an implicit sweep walks the grid: planes that are independent, lines in a plane, positions on a line.

use super::Planes;

/// A sweep along one direction. As on an accelerator, work arrays lie as `[plane][position][line]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sweep {
    X,
    Y,
    Z,
}

impl Sweep {
    pub(crate) const ALL: [Self; 3] = [Self::X, Self::Y, Self::Z];

    /// 0, 1 or 2.
    pub(crate) const fn axis(self) -> usize {
        self as usize
    }

    /// The planes that hold whole lines of this sweep.
    pub(crate) const fn planes(self) -> Planes {
        match self {
            Self::X | Self::Y => Planes::K,
            Self::Z => Planes::J,
        }
    }

    /// Row and column, within a plane of the grid, of a position on a line.
    #[inline]
    pub(crate) const fn place(self, position: usize, line: usize) -> (usize, usize) {
        match self {
            Self::X => (line, position),
            Self::Y | Self::Z => (position, line),
        }
    }

    /// The cell at a position on a line of a plane.
    #[inline]
    pub(crate) const fn cell(self, n: usize, plane: usize, position: usize, line: usize) -> usize {
        match self {
            Self::X => (plane * n + line) * n + position,
            Self::Y => (plane * n + position) * n + line,
            Self::Z => (position * n + plane) * n + line,
        }
    }
}
