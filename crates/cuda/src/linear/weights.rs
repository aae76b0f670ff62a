//! The weights of a linear layer: a frozen matrix, a tight one, or a writable one.

use buddy_codec::{Codec, FrozenHeader};
use cudarc::driver::CudaStream;

use crate::{DeviceSpan, Error, FrozenBuffer, Gpu, TightMatrix, WritableMatrix, layout::PackedMatrixView};

/// A matrix that a linear layer reads in place.
#[derive(Debug, Clone, Copy)]
pub enum Weights<'a> {
    /// Packed once, its overflow compact behind an index.
    Frozen(&'a FrozenBuffer<'a>),
    /// Written at any time, its overflow in slots.
    Written(&'a WritableMatrix<'a>),
    /// Packed once, to fewer bytes; slower than frozen weights for up to 512 tokens.
    Tight(&'a TightMatrix<'a>),
}

impl<'a> From<&'a FrozenBuffer<'a>> for Weights<'a> {
    fn from(frozen: &'a FrozenBuffer<'a>) -> Self {
        Self::Frozen(frozen)
    }
}

impl<'a> From<&'a WritableMatrix<'a>> for Weights<'a> {
    fn from(matrix: &'a WritableMatrix<'a>) -> Self {
        Self::Written(matrix)
    }
}

impl<'a> From<&'a TightMatrix<'a>> for Weights<'a> {
    fn from(matrix: &'a TightMatrix<'a>) -> Self {
        Self::Tight(matrix)
    }
}

impl Weights<'_> {
    /// Returns the header that describes the weights.
    pub fn header(&self) -> &FrozenHeader {
        match self {
            Self::Frozen(frozen) => frozen.header(),
            Self::Written(matrix) => matrix.header(),
            Self::Tight(matrix) => matrix.frozen_header(),
        }
    }

    pub(crate) fn gpu(&self) -> &Gpu {
        match self {
            Self::Frozen(frozen) => frozen.gpu(),
            Self::Written(matrix) => matrix.gpu(),
            Self::Tight(matrix) => matrix.gpu(),
        }
    }

    /// Unpacks rows from `first` on, a multiple of 16.
    pub(super) fn read(&self, on: &CudaStream, first: u32, to: DeviceSpan<'_>) -> Result<(), Error> {
        match self {
            Self::Frozen(frozen) => frozen.read(on, u64::from(first) * u64::from(frozen.header().row), to),
            Self::Written(matrix) => matrix.read(on, first, to),
            Self::Tight(matrix) => matrix.read(on, first, to),
        }
    }

    /// Returns true for the tight layout.
    pub(super) fn are_tight(&self) -> bool {
        matches!(self, Self::Tight(_))
    }

    /// Returns the weights as kernels take them.
    pub(super) fn view(&self) -> PackedMatrixView {
        let frozen = match self {
            Self::Frozen(frozen) => frozen,
            Self::Written(matrix) => return matrix.weights(),
            Self::Tight(matrix) => return matrix.weights(),
        };
        let window = match &frozen.header().codec {
            Codec::Bf16(bf16) => u32::from(bf16.window()),
            _ => 0,
        };
        let view = frozen.view();
        PackedMatrixView {
            device: view.device,
            nibbles: view.nibbles,
            overflow: view.overflow,
            index: view.index,
            sectors: view.sectors,
            window,
        }
    }
}
