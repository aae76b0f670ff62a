//! The targets of one allocation, and the one place that says whether ranges of pages make it up.

use serde::{Deserialize, Serialize};

use crate::Target;

/// The targets of an allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Targets {
    /// One for all of it, however long it is.
    Uniform(Target),
    /// One for each range of pages, first to last. [`ranges`](Self::ranges) checks that they make up an allocation.
    Pages(Vec<TargetRange>),
}

/// Pages that lie one after the other with one target. They are of 8 KiB in a file, a simulation and on a GPU, and as
/// long as the pages of its page table in a memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetRange {
    /// How many pages, at least one.
    pub pages: u64,
    /// The target of each of their entries.
    pub target: Target,
}

/// Why ranges of pages do not make up an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RangesError {
    /// A range without pages.
    #[error("a range has no pages; it must have one at least")]
    Empty,
    /// More or fewer pages than the allocation's.
    #[error("the ranges have {found} pages; it has {expected}")]
    Sum {
        /// Pages of the allocation.
        expected: u64,
        /// Pages of all ranges together, or the largest number there is if they are more.
        found: u64,
    },
}

impl Targets {
    /// These ranges, or the one target where there is one range. Where there is none, as of no bytes, it is 1x.
    pub fn of(ranges: Vec<TargetRange>) -> Self {
        match ranges[..] {
            [] => Self::Uniform(Target::X1),
            [TargetRange { target, .. }] => Self::Uniform(target),
            _ => Self::Pages(ranges),
        }
    }

    /// How many ranges there are: one where it has one target.
    pub fn count(&self) -> usize {
        match self {
            Self::Uniform(_) => 1,
            Self::Pages(ranges) => ranges.len(),
        }
    }

    /// Gives the range of this number another target.
    ///
    /// # Panics
    /// If there is no such range.
    pub fn set(&mut self, range: usize, target: Target) {
        match self {
            Self::Uniform(all) if range == 0 => *all = target,
            Self::Uniform(_) => panic!("range {range} of one"),
            Self::Pages(ranges) => ranges[range].target = target,
        }
    }

    /// The target of all of it, where it has one.
    pub fn uniform(&self) -> Option<Target> {
        match self {
            Self::Uniform(target) => Some(*target),
            Self::Pages(_) => None,
        }
    }

    /// The ranges of an allocation of `pages` pages, first to last; one where it has one target.
    ///
    /// # Errors
    /// [`RangesError`] unless every range has pages and all of them together are those of the allocation.
    pub fn ranges(&self, pages: u64) -> Result<Vec<TargetRange>, RangesError> {
        let ranges = match self {
            Self::Uniform(target) => return Ok(vec![TargetRange { pages, target: *target }]),
            Self::Pages(ranges) => ranges,
        };
        if ranges.iter().any(|range| range.pages == 0) {
            return Err(RangesError::Empty);
        }
        let found = ranges.iter().fold(0u64, |sum, range| sum.saturating_add(range.pages));
        if found == pages { Ok(ranges.clone()) } else { Err(RangesError::Sum { expected: pages, found }) }
    }
}

impl From<Target> for Targets {
    fn from(target: Target) -> Self {
        Self::Uniform(target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pages: &[u64]) -> Targets {
        Targets::Pages(pages.iter().map(|&pages| TargetRange { pages, target: Target::X2 }).collect())
    }

    #[test]
    fn ranges_make_up_the_allocation_or_are_refused() {
        assert_eq!(of(&[3, 4]).ranges(7).unwrap().len(), 2);
        for pages in [6, 8] {
            assert_eq!(of(&[3, 4]).ranges(pages), Err(RangesError::Sum { expected: pages, found: 7 }));
        }
        assert_eq!(of(&[]).ranges(1), Err(RangesError::Sum { expected: 1, found: 0 }));
        assert_eq!(of(&[0, 4]).ranges(4), Err(RangesError::Empty));
        assert_eq!(of(&[u64::MAX, 5]).ranges(4), Err(RangesError::Sum { expected: 4, found: u64::MAX }));
    }

    #[test]
    fn one_target_is_for_any_length() {
        let range = TargetRange { pages: 9, target: Target::Uncompressed };
        assert_eq!(Targets::from(Target::Uncompressed).ranges(9), Ok(vec![range]));
        assert_eq!(Targets::of(vec![range]).uniform(), Some(Target::Uncompressed));
        assert_eq!(Targets::of(vec![range, range]).uniform(), None);
    }
}
