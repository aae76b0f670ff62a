//! Iteration order of an implicit sweep: independent planes, lines in a plane, positions on a line.

use super::Planes;

/// A sweep along one direction. As on an accelerator, work arrays are laid out as
/// `[plane][position][line]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sweep {
    X,
    Y,
    Z,
}

impl Sweep {
    pub(crate) const ALL: [Self; 3] = [Self::X, Self::Y, Self::Z];

    /// Returns the axis number.
    pub(crate) const fn axis(self) -> usize {
        self as usize
    }

    /// Returns the planes that contain whole lines of this sweep.
    pub(crate) const fn planes(self) -> Planes {
        match self {
            Self::X | Self::Y => Planes::K,
            Self::Z => Planes::J,
        }
    }

    /// Returns row and column, within a plane of the grid, of a position on a line.
    #[inline]
    pub(crate) const fn row_column(self, position: usize, line: usize) -> (usize, usize) {
        match self {
            Self::X => (line, position),
            Self::Y | Self::Z => (position, line),
        }
    }

    /// Returns the cell at a position on a line of a plane.
    #[inline]
    pub(crate) const fn cell(self, n: usize, plane: usize, position: usize, line: usize) -> usize {
        match self {
            Self::X => (plane * n + line) * n + position,
            Self::Y => (plane * n + position) * n + line,
            Self::Z => (position * n + plane) * n + line,
        }
    }
}
