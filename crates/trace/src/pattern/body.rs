//! What a thread does in one step of a [`Nest`](super::Nest): accesses that grow evenly or follow a list, and
//! arithmetic on what they bring.

use std::sync::Arc;

use super::Array;
use crate::Op;

/// Numbers that a program keeps in one of its arrays, shared and not copied.
pub type List = Arc<Vec<i32>>;

/// Which element an access goes to: its number grows evenly with the thread's place and with the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// The element of the first thread in the first step.
    pub first: i64,
    /// How far apart the elements of neighbours along each axis are.
    pub along: [i64; 4],
    /// How far apart the elements of two steps are.
    pub step: i64,
}

impl Place {
    /// Elements in the order of threads along the first axis.
    pub const LINE: Self = Self { first: 0, along: [1, 0, 0, 0], step: 0 };

    /// Evenly spaced along the axes, the same in every step.
    pub fn along(along: [i64; 4]) -> Self {
        Self { along, ..Self::default() }
    }

    /// The same, some elements further.
    pub fn plus(self, elements: i64) -> Self {
        Self { first: self.first + elements, ..self }
    }

    /// The same, moving with each step.
    pub fn stepping(self, step: i64) -> Self {
        Self { step, ..self }
    }

    /// The element of a thread.
    #[inline]
    pub(crate) fn element(&self, at: [i64; 4], step: i64) -> i64 {
        let sum = |sum, axis: usize| sum + self.along[axis] * at[axis];
        (0..4).fold(self.first + self.step * step, sum)
    }
}

/// Where in a list a thread finds its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// The array that holds the list.
    pub array: Array,
    /// The numbers themselves, so that addresses follow the program's data.
    pub list: List,
    /// Which number of the list, or, with `rows`, which row.
    pub place: Place,
    /// Where each row begins in the list and the last one ends; a step goes to the next number of the row, and
    /// threads whose row has ended rest.
    pub rows: Option<List>,
}

/// One thing that a thread does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Even { op: Op, array: Array, place: Place },
    Index(Index),
    Listed { op: Op, array: Array, index: Index, scale: i64, first: i64 },
    Shared { op: Op, width: u8 },
    Work { op: Op, count: u32, chains: u8 },
    Barrier,
}

/// The things that a thread does in one step, in order.
///
/// Only what the program does is named. The instructions that go with it are added by a [`Nest`](super::Nest):
/// addresses, and the loop itself.
#[derive(Debug, Clone, Default)]
pub struct Body {
    pub(crate) parts: Vec<Part>,
}

impl Body {
    /// Loads one element of an array for each thread.
    pub fn load(mut self, array: Array, place: Place) -> Self {
        self.parts.push(Part::Even { op: Op::LoadGlobal, array, place });
        self
    }

    /// Loads an element and its neighbours, each so many elements away.
    pub fn load_each(self, array: Array, place: Place, offsets: &[i64]) -> Self {
        offsets.iter().fold(self, |body, &offset| body.load(array, place.plus(offset)))
    }

    /// Stores one element of an array for each thread.
    pub fn store(mut self, array: Array, place: Place) -> Self {
        self.parts.push(Part::Even { op: Op::StoreGlobal, array, place });
        self
    }

    /// Loads a number of a list.
    pub fn index(mut self, index: &Index) -> Self {
        self.parts.push(Part::Index(index.clone()));
        self
    }

    /// Loads the element `first + scale n` of an array, where `n` is the number that `index` loaded.
    pub fn gather(mut self, array: Array, index: &Index, scale: i64, first: i64) -> Self {
        self.parts.push(Part::Listed { op: Op::LoadGlobal, array, index: index.clone(), scale, first });
        self
    }

    /// Stores the element `first + scale n` of an array, where `n` is the number that `index` loaded.
    pub fn scatter(mut self, array: Array, index: &Index, scale: i64, first: i64) -> Self {
        self.parts.push(Part::Listed { op: Op::StoreGlobal, array, index: index.clone(), scale, first });
        self
    }

    /// Stores to shared memory, waits for the block, and loads from there: lanes side by side.
    pub fn exchange(mut self, width: u8) -> Self {
        self.parts.push(Part::Shared { op: Op::StoreShared, width });
        self.parts.push(Part::Barrier);
        self.parts.push(Part::Shared { op: Op::LoadShared, width });
        self
    }

    /// Computes: so many instructions, in so many chains that do not wait for each other (1 to 16). They take
    /// in turn what was loaded.
    pub fn work(mut self, op: Op, count: u32, chains: u8) -> Self {
        assert!((1..=16).contains(&chains), "{chains} chains: use 1 to 16");
        self.parts.push(Part::Work { op, count, chains });
        self
    }
}
