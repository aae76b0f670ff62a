//! The body of a [`Nest`](super::Nest): affine or indirect accesses per step, and arithmetic on the
//! loaded values.

use std::sync::Arc;

use super::Array;
use crate::Op;

/// Contents of an index array, shared.
pub type List = Arc<Vec<i32>>;

/// Affine element index: linear in the thread's coordinates and the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Affine {
    /// Element of the first thread in the first step.
    pub first: i64,
    /// Elements between neighbouring threads along each axis.
    pub along: [i64; 4],
    /// Elements between two steps.
    pub step: i64,
}

impl Affine {
    /// Consecutive elements along the first axis.
    pub const LINE: Self = Self { first: 0, along: [1, 0, 0, 0], step: 0 };

    /// Creates an index with these strides along the axes, the same in every step.
    pub fn along(along: [i64; 4]) -> Self {
        Self { along, ..Self::default() }
    }

    /// Adds an offset in elements.
    pub fn plus(self, elements: i64) -> Self {
        Self { first: self.first + elements, ..self }
    }

    /// Sets the stride per step.
    pub fn stepping(self, step: i64) -> Self {
        Self { step, ..self }
    }

    /// Returns the element of a thread.
    #[inline]
    pub(crate) fn element(&self, at: [i64; 4], step: i64) -> i64 {
        let sum = |sum, axis: usize| sum + self.along[axis] * at[axis];
        (0..4).fold(self.first + self.step * step, sum)
    }
}

/// An indirect index: the position in an index array that a thread reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// Array that holds the list.
    pub array: Array,
    /// Contents of the list, so that addresses follow the program's data.
    pub list: List,
    /// Position in the list, or with `rows` the row.
    pub place: Affine,
    /// CSR row offsets into the list. Each step reads the row's next number; threads past the end
    /// of their row are predicated off.
    pub rows: Option<List>,
}

/// One operation of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Even { op: Op, array: Array, place: Affine },
    Index(Index),
    Listed { op: Op, array: Array, index: Index, scale: i64, first: i64 },
    Shared { op: Op, width: u8 },
    Work { op: Op, count: u32, chains: u8 },
    Barrier,
}

/// Operations of a thread in one step, in order.
///
/// Only the program's own operations are listed. [`Nest`](super::Nest) adds address computation and
/// loop control.
#[derive(Debug, Clone, Default)]
pub struct Body {
    pub(crate) parts: Vec<Part>,
}

impl Body {
    /// Loads one element per thread.
    pub fn load(mut self, array: Array, place: Affine) -> Self {
        self.parts.push(Part::Even { op: Op::LoadGlobal, array, place });
        self
    }

    /// Loads an element and its neighbours at these offsets in elements.
    pub fn load_each(self, array: Array, place: Affine, offsets: &[i64]) -> Self {
        offsets.iter().fold(self, |body, &offset| body.load(array, place.plus(offset)))
    }

    /// Stores one element per thread.
    pub fn store(mut self, array: Array, place: Affine) -> Self {
        self.parts.push(Part::Even { op: Op::StoreGlobal, array, place });
        self
    }

    /// Loads a number from an index list.
    pub fn index(mut self, index: &Index) -> Self {
        self.parts.push(Part::Index(index.clone()));
        self
    }

    /// Loads element `first + scale n`, where `n` is the number that `index` loaded.
    pub fn gather(mut self, array: Array, index: &Index, scale: i64, first: i64) -> Self {
        self.parts.push(Part::Listed { op: Op::LoadGlobal, array, index: index.clone(), scale, first });
        self
    }

    /// Stores element `first + scale n`, where `n` is the number that `index` loaded.
    pub fn scatter(mut self, array: Array, index: &Index, scale: i64, first: i64) -> Self {
        self.parts.push(Part::Listed { op: Op::StoreGlobal, array, index: index.clone(), scale, first });
        self
    }

    /// Stores to shared memory, waits at a barrier and loads back, with consecutive lanes.
    pub fn exchange(mut self, width: u8) -> Self {
        self.parts.push(Part::Shared { op: Op::StoreShared, width });
        self.parts.push(Part::Barrier);
        self.parts.push(Part::Shared { op: Op::LoadShared, width });
        self
    }

    /// Adds `count` arithmetic instructions in `chains` independent chains (1 to 16), which consume
    /// the loaded values in turn.
    pub fn work(mut self, op: Op, count: u32, chains: u8) -> Self {
        assert!((1..=16).contains(&chains), "{chains} chains: use 1 to 16");
        self.parts.push(Part::Work { op, count, chains });
        self
    }
}
