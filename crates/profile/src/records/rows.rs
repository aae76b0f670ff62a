//! Limits the pages of an allocation that are kept entry by entry, for readable maps and small
//! records.

use crate::look::Shown;

/// A limit on kept pages (rows of a page map), shared by allocations in proportion to their bytes.
#[derive(Debug, Clone, Copy)]
pub struct Rows {
    /// Number of codecs, from the first, to keep pages of.
    codecs: usize,
    /// Least rows of an allocation.
    fewest: usize,
    /// Most rows of an allocation.
    most: usize,
    /// Approximate total over all allocations.
    all: u64,
}

impl Rows {
    /// No page.
    pub const NONE: Self = Self { codecs: 0, fewest: 0, most: 0, all: 0 };
    /// Every page, as the simulator needs.
    pub const EVERY: Self = Self { codecs: 1, fewest: usize::MAX, most: usize::MAX, all: 0 };
    /// Page maps of `buddy analyze`, with every codec.
    pub(crate) const ANALYSIS: Self = Self { codecs: usize::MAX, fewest: 8, most: 512, all: 16_384 };
    /// Page maps of a profile, with every codec, since the shown codec is chosen later.
    pub const PROFILE: Self = Self { codecs: usize::MAX, fewest: 8, most: MOST_OF_PROFILE, all: 8192 };
    /// Page maps in the record of a run, per snapshot.
    pub const RECORD: Self = Self { codecs: 1, fewest: 1, most: 64, all: 64 };

    /// Returns the same limit for all codecs of an allocation.
    #[must_use]
    pub const fn with_every_codec(self) -> Self {
        Self { codecs: usize::MAX, ..self }
    }

    /// Returns the limit for an allocation of `bytes` in a run of `all_bytes`.
    pub(crate) fn of(self, bytes: u64, all_bytes: u64) -> Shown {
        let share = self.all as f64 * bytes as f64 / all_bytes.max(1) as f64;
        Shown { codecs: self.codecs, rows: (share as usize).clamp(self.fewest, self.most) }
    }
}

/// Most rows of an allocation in a profile.
pub(crate) const MOST_OF_PROFILE: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_proportional_to_bytes_within_limits() {
        let Rows { fewest, most, all, .. } = Rows::ANALYSIS;
        let rows = |limit: Rows, bytes, all| limit.of(bytes, all).rows;
        assert_eq!(rows(Rows::ANALYSIS, 100, 100), most);
        assert_eq!(rows(Rows::ANALYSIS, 1, 1_000_000), fewest);
        assert_eq!(rows(Rows::ANALYSIS, 100, 10_000) as u64, all / 100);
        assert_eq!(rows(Rows::ANALYSIS, 0, 0), fewest);
        assert_eq!((rows(Rows::NONE, 1, 1), rows(Rows::EVERY, 1, 2)), (0, usize::MAX));
        assert_eq!([1, 33, 64].map(|bytes| rows(Rows::RECORD, bytes, 128)), [1, 16, 32]);
    }
}
