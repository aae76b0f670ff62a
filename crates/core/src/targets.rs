//! The targets of one allocation, and the check that page ranges cover it.

use serde::{Deserialize, Serialize};

use crate::Target;

/// Targets of an allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Targets {
    /// One target for any length.
    Uniform(Target),
    /// One target per page range, first to last. [`ranges`](Self::ranges) checks that they cover an
    /// allocation.
    Pages(Vec<TargetRange>),
}

/// Consecutive pages with one target. Pages are 8 KiB in files, simulations and on a GPU; in a
/// memory they have the size of its page table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetRange {
    /// Number of pages, at least one.
    pub pages: u64,
    /// Target of the range.
    pub target: Target,
}

/// Errors of ranges that do not cover an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RangesError {
    /// A range without pages.
    #[error("a range has no pages; it must have one at least")]
    Empty,
    /// More or fewer pages than the allocation.
    #[error("the ranges have {found} pages; it has {expected}")]
    Sum {
        /// Pages of the allocation.
        expected: u64,
        /// Pages of all ranges, saturating.
        found: u64,
    },
}

impl Targets {
    /// Creates targets from ranges; a single range becomes uniform, and no ranges become 1x.
    pub fn from_ranges(ranges: Vec<TargetRange>) -> Self {
        match ranges[..] {
            [] => Self::Uniform(Target::X1),
            [TargetRange { target, .. }] => Self::Uniform(target),
            _ => Self::Pages(ranges),
        }
    }

    /// Returns the number of ranges; 1 for a uniform target.
    pub fn count(&self) -> usize {
        match self {
            Self::Uniform(_) => 1,
            Self::Pages(ranges) => ranges.len(),
        }
    }

    /// Sets the target of one range.
    ///
    /// # Panics
    /// If `range` is out of range.
    pub fn set(&mut self, range: usize, target: Target) {
        match self {
            Self::Uniform(all) if range == 0 => *all = target,
            Self::Uniform(_) => panic!("range {range} of one"),
            Self::Pages(ranges) => ranges[range].target = target,
        }
    }

    /// Returns the target if it is uniform.
    pub fn uniform(&self) -> Option<Target> {
        match self {
            Self::Uniform(target) => Some(*target),
            Self::Pages(_) => None,
        }
    }

    /// Returns the ranges of an allocation of `pages` pages, first to last; one for a uniform
    /// target.
    ///
    /// # Errors
    /// [`RangesError`] unless every range has pages and their sum is `pages`.
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
    fn ranges_that_do_not_cover_the_allocation_are_refused() {
        assert_eq!(of(&[3, 4]).ranges(7).unwrap().len(), 2);
        for pages in [6, 8] {
            assert_eq!(of(&[3, 4]).ranges(pages), Err(RangesError::Sum { expected: pages, found: 7 }));
        }
        assert_eq!(of(&[]).ranges(1), Err(RangesError::Sum { expected: 1, found: 0 }));
        assert_eq!(of(&[0, 4]).ranges(4), Err(RangesError::Empty));
        assert_eq!(of(&[u64::MAX, 5]).ranges(4), Err(RangesError::Sum { expected: 4, found: u64::MAX }));
    }

    #[test]
    fn a_uniform_target_fits_any_length() {
        let range = TargetRange { pages: 9, target: Target::Uncompressed };
        assert_eq!(Targets::from(Target::Uncompressed).ranges(9), Ok(vec![range]));
        assert_eq!(Targets::from_ranges(vec![range]).uniform(), Some(Target::Uncompressed));
        assert_eq!(Targets::from_ranges(vec![range, range]).uniform(), None);
    }
}
