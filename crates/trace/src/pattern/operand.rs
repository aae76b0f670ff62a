//! Where the elements of a product's matrices lie: in rows and columns, or in the patches of images.

use super::Array;

/// How far apart the elements of one index lie: evenly, or evenly within runs that are themselves evenly spaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stride {
    /// Elements from one to the next within a run.
    pub step: u64,
    /// How many a run has.
    pub run: u64,
    /// Elements from run to run.
    pub outer: u64,
}

impl Stride {
    /// Elements `step` apart, without runs.
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

/// One matrix of a product. An element is named by its index along the side that the result keeps, and by its
/// index along the depth, over which the product sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    /// Elements that are all stored.
    Matrix {
        /// The array that holds them.
        array: Array,
        /// Along the result's side.
        side: Stride,
        /// Distance of neighbours along the depth, over which the product sums.
        depth: Stride,
    },
    /// The patches of images under a filter, which are not stored: an element is looked up in its image.
    Patches {
        /// The images and the filter whose patches are the matrix.
        images: Images,
        /// Whether the depth runs over the pixels rather than over the taps of the filter.
        deep_pixels: bool,
    },
}

/// Images in order of image, channel, row and column, and the filter that visits them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Images {
    /// The array that holds them.
    pub array: Array,
    /// Channels of an image.
    pub channels: u64,
    /// The first channel that the filter sees.
    pub first_channel: u64,
    /// Rows and columns of an image.
    pub size: [u64; 2],
    /// Rows and columns of the places that the filter visits.
    pub places: [u64; 2],
    /// Rows and columns of the filter.
    pub kernel: u64,
    /// Pixels from place to place.
    pub stride: u64,
    /// Zeros around an image.
    pub pad: u64,
    /// Backwards: the places are pixels of a convolution's input, and the images are gradients of its output.
    pub backwards: bool,
}

impl Images {
    /// The address of what a tap of the filter meets at a place, none for padding. Taps run over channel, row and
    /// column; places over image, row and column.
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

    /// The row or column that a tap meets.
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
    /// A matrix whose rows are the result's side: row-major, `columns` long.
    pub fn rows(array: Array, columns: u64) -> Self {
        Self::Matrix { array, side: Stride::even(columns), depth: Stride::even(1) }
    }

    /// A matrix whose columns are the result's side: row-major, `columns` long.
    pub fn columns(array: Array, columns: u64) -> Self {
        Self::Matrix { array, side: Stride::even(1), depth: Stride::even(columns) }
    }

    /// The address of an element, none where it is known to be zero.
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

    /// Whether neighbours along the depth are neighbours in memory.
    pub(super) fn deep(&self) -> bool {
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
    fn rows_and_columns() {
        let rows = Operand::rows(ARRAY, 10);
        assert_eq!((rows.address(2, 3), rows.deep()), (Some(1000 + 4 * 23), true));
        let columns = Operand::columns(ARRAY, 10);
        assert_eq!((columns.address(2, 3), columns.deep()), (Some(1000 + 4 * 32), false));
        // Pixels of images with 7 pixels and 3 channels: after 7 pixels comes the next image.
        let pixels = Stride { step: 1, run: 7, outer: 21 };
        assert_eq!([pixels.offset(6), pixels.offset(7)], [6, 21]);
    }

    #[test]
    fn every_product_of_a_convolution_meets_the_same_pixels() {
        // Two images of 2 channels, 5 by 5; filters of 3 by 3, stride 2, padding 1: places of 3 by 3.
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
        // The first tap of the first place lies in the padding; the middle one on the first pixel.
        assert_eq!(forward.address(0, 0), None);
        assert_eq!(forward.address(0, 4), Some(1000));
        // Second image, place (1, 2), channel 1, tap (0, 1): row 1, column 4.
        assert_eq!(forward.address(9 + 5, 9 + 1), Some(1000 + 4 * (50 + 25 + 5 + 4)));
        // An output's gradient flows back to exactly the pixels that made the output.
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
