//! How many pages of an allocation are kept entry by entry: pictures stay readable, records and pages small.

use crate::look::Shown;

/// A limit on rows; allocations share them by their bytes.
#[derive(Debug, Clone, Copy)]
pub struct Rows {
    /// With the first so many of an allocation's codecs.
    codecs: usize,
    fewest: usize,
    most: usize,
    /// Of all allocations together, about.
    all: u64,
}

impl Rows {
    /// No page: counts alone are wanted.
    pub const NONE: Self = Self { codecs: 0, fewest: 0, most: 0, all: 0 };
    /// Every page: the class of every entry, which is what a simulator reads.
    pub const EVERY: Self = Self { codecs: 1, fewest: usize::MAX, most: usize::MAX, all: 0 };
    /// The pictures of `buddy analyze`, with every codec.
    pub(crate) const ANALYSIS: Self = Self { codecs: usize::MAX, fewest: 8, most: 512, all: 16_384 };
    /// The pictures of a profile, with every codec: which of them is shown follows from what is chosen.
    pub const PROFILE: Self = Self { codecs: usize::MAX, fewest: 8, most: MOST_OF_PROFILE, all: 8192 };
    /// What the record of a run keeps of each snapshot.
    pub const RECORD: Self = Self { codecs: 1, fewest: 1, most: 64, all: 64 };

    /// The same with all codecs of an allocation, not only its first.
    #[must_use]
    pub const fn with_every_codec(self) -> Self {
        Self { codecs: usize::MAX, ..self }
    }

    /// Those of an allocation of `bytes` among `all_bytes`.
    pub(crate) fn of(self, bytes: u64, all_bytes: u64) -> Shown {
        let share = self.all as f64 * bytes as f64 / all_bytes.max(1) as f64;
        Shown { codecs: self.codecs, rows: (share as usize).clamp(self.fewest, self.most) }
    }
}

/// Rows of an allocation that a profile shows at most.
pub(crate) const MOST_OF_PROFILE: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_shared_out() {
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
