//! Layouts of a product's matrices: strided, or patches of images (implicit GEMM).

use super::Array;

/// A stride, optionally nested: elements `step` apart within runs that are `outer` apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stride {
    /// Elements between neighbours within a run.
    pub step: u64,
    /// Length of a run.
    pub run: u64,
    /// Elements between runs.
    pub outer: u64,
}

impl Stride {
    /// Creates a stride without runs.
    pub const fn even(step: u64) -> Self {
        Self { step, run: u64::MAX, outer: 0 }
    }

    #[inline]
    fn offset(self, index: u64) -> u64 {
        if self.run == u64::MAX {
            index * self.step
        } else {
            index / self.run * self.outer + index % self.run * self.step
        }
    }
}

/// One matrix of a product. An element has an index along the result's side (m or n) and one along
/// the depth (k), which is summed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    /// A matrix in memory.
    Matrix {
        /// Array that holds the elements.
        array: Array,
        /// Stride along the result's side.
        side: Stride,
        /// Stride along the depth.
        depth: Stride,
    },
    /// Patches of images under a filter, read from the images and not stored.
    Patches {
        /// Images and filter.
        images: Images,
        /// If true, the depth runs over pixels, else over filter taps.
        deep_pixels: bool,
    },
}

/// Images in NCHW order and the filter applied to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Images {
    /// Array that holds the elements.
    pub array: Array,
    /// Channels of an image.
    pub channels: u64,
    /// First channel that the filter reads.
    pub first_channel: u64,
    /// Rows and columns of an image.
    pub size: [u64; 2],
    /// Rows and columns of the filter positions.
    pub places: [u64; 2],
    /// Rows and columns of the filter.
    pub kernel: u64,
    /// Pixels between filter positions.
    pub stride: u64,
    /// Zero padding in pixels.
    pub pad: u64,
    /// If true, positions are pixels of a convolution's input, and the images are gradients of its
    /// output.
    pub backwards: bool,
}

impl Images {
    /// Returns the address that a filter tap reads at a position, `None` in the padding. Taps run
    /// over channel, row and column; positions over image, row and column.
    #[inline]
    fn address(&self, place: u64, tap: u64) -> Option<u64> {
        let [rows, columns] = self.places;
        let (image, within) = (place / (rows * columns), place % (rows * columns));
        let taps = self.kernel * self.kernel;
        let (channel, tap) = (self.first_channel + tap / taps, tap % taps);
        let row = self.pixel(within / columns, tap / self.kernel, self.size[0])?;
        let column = self.pixel(within % columns, tap % self.kernel, self.size[1])?;
        let index = ((image * self.channels + channel) * self.size[0] + row) * self.size[1] + column;
        Some(self.array.address(index))
    }

    /// Returns the row or column that a tap reads.
    #[inline]
    fn pixel(&self, place: u64, tap: u64, size: u64) -> Option<u64> {
        let pixel = if self.backwards {
            let apart = (place + self.pad).checked_sub(tap)?;
            if !apart.is_multiple_of(self.stride) {
                return None;
            }
            apart / self.stride
        } else {
            (place * self.stride + tap).checked_sub(self.pad)?
        };
        (pixel < size).then_some(pixel)
    }
}

impl Operand {
    /// Creates a row-major matrix, `columns` wide, whose rows are the result's side.
    pub fn rows(array: Array, columns: u64) -> Self {
        Self::Matrix { array, side: Stride::even(columns), depth: Stride::even(1) }
    }

    /// Creates a row-major matrix, `columns` wide, whose columns are the result's side.
    pub fn columns(array: Array, columns: u64) -> Self {
        Self::Matrix { array, side: Stride::even(1), depth: Stride::even(columns) }
    }

    /// Returns the address of an element, `None` if it is a padding zero.
    #[inline]
    pub(super) fn address(&self, side: u64, depth: u64) -> Option<u64> {
        match self {
            Self::Matrix { array, side: across, depth: down } => {
                Some(array.address(across.offset(side) + down.offset(depth)))
            }
            Self::Patches { images, deep_pixels: false } => images.address(side, depth),
            Self::Patches { images, deep_pixels: true } => images.address(depth, side),
        }
    }

    /// Returns whether elements along the depth are contiguous.
    pub(super) fn is_contiguous_along_depth(&self) -> bool {
        match self {
            Self::Matrix { depth, .. } => depth.step == 1 && depth.run > 1,
            Self::Patches { deep_pixels, .. } => *deep_pixels,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARRAY: Array = Array { base: 1000, element_bytes: 4 };

    #[test]
    fn matrices_address_rows_and_columns() {
        let rows = Operand::rows(ARRAY, 10);
        assert_eq!((rows.address(2, 3), rows.is_contiguous_along_depth()), (Some(1000 + 4 * 23), true));
        let columns = Operand::columns(ARRAY, 10);
        assert_eq!(
            (columns.address(2, 3), columns.is_contiguous_along_depth()),
            (Some(1000 + 4 * 32), false)
        );
        // Images of 7 pixels and 3 channels: after 7 pixels the next image begins.
        let pixels = Stride { step: 1, run: 7, outer: 21 };
        assert_eq!([pixels.offset(6), pixels.offset(7)], [6, 21]);
    }

    #[test]
    fn forward_and_backward_convolutions_read_the_same_pixels() {
        // Two images of 2 channels, 5 by 5; filters of 3 by 3, stride 2, padding 1: 3 by 3
        // positions.
        let forward = Images {
            array: ARRAY,
            channels: 2,
            first_channel: 0,
            size: [5, 5],
            places: [3, 3],
            kernel: 3,
            stride: 2,
            pad: 1,
            backwards: false,
        };
        // The first tap of the first position is in the padding; the middle one on the first pixel.
        assert_eq!(forward.address(0, 0), None);
        assert_eq!(forward.address(0, 4), Some(1000));
        // Second image, position (1, 2), channel 1, tap (0, 1): row 1, column 4.
        assert_eq!(forward.address(9 + 5, 9 + 1), Some(1000 + 4 * (50 + 25 + 5 + 4)));
        // An output's gradient flows back to exactly the pixels that produced it.
        let backward = Images { channels: 1, size: [3, 3], places: [5, 5], backwards: true, ..forward };
        for tap in 0..9 {
            for place in 0..9 {
                let pixel = forward.address(place, tap).map(|address| (address - 1000) / 4);
                let back = |pixel| backward.address(pixel, tap) == Some(1000 + 4 * place);
                let found: Vec<u64> = (0..25).filter(|&pixel| back(pixel)).collect();
                assert_eq!(found, pixel.into_iter().collect::<Vec<_>>());
            }
        }
    }
}
