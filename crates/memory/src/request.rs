//! What is asked of a memory: how many bytes, and how to keep them.

use buddy_codec::Codec;
use buddy_core::Target;
use serde::{Deserialize, Serialize};

use crate::{Error, Spec};

/// A wish for an allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Its length.
    pub bytes: u64,
    /// How its bytes are kept.
    pub storage: Storage,
}

/// How bytes are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// As they are, all on the device: no codec, no metadata.
    Plain,
    /// Compressed, entry by entry.
    Compressed {
        /// The codec, ready for this data.
        codec: Codec,
        /// How much of each entry lies on the device.
        targets: Targets,
    },
}

/// The targets of an allocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Targets {
    /// One for all of it.
    All(Target),
    /// One for each range of pages, first to last. The ranges make up the whole allocation.
    Pages(Vec<PageRange>),
}

/// Pages that lie one after the other with one target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageRange {
    /// How many.
    pub pages: u64,
    /// Their target.
    pub target: Target,
}

impl Request {
    /// Compressed data with one target.
    pub fn new(bytes: u64, codec: Codec, target: Target) -> Self {
        Self { bytes, storage: Storage::Compressed { codec, targets: Targets::All(target) } }
    }

    /// Compressed data with a target for each range of pages.
    pub fn by_pages(bytes: u64, codec: Codec, ranges: Vec<PageRange>) -> Self {
        Self { bytes, storage: Storage::Compressed { codec, targets: Targets::Pages(ranges) } }
    }

    /// Data that is kept as it is.
    pub fn plain(bytes: u64) -> Self {
        Self { bytes, storage: Storage::Plain }
    }
}

impl Targets {
    /// The ranges of an allocation of `pages` pages.
    pub(crate) fn ranges(&self, pages: u64, spec: &Spec) -> Result<Vec<PageRange>, Error> {
        let ranges = match self {
            Self::All(target) => vec![PageRange { pages, target: *target }],
            Self::Pages(ranges) => ranges.clone(),
        };
        let wrong = |what| Err(Error::Ranges { pages, page_bytes: spec.page_bytes, what });
        if ranges.iter().any(|range| range.pages == 0) {
            return wrong("a range is empty");
        }
        let sum = ranges.iter().try_fold(0u64, |sum, range| sum.checked_add(range.pages));
        if sum != Some(pages) {
            return wrong("their lengths do not add up");
        }
        let largest = spec.largest_target;
        match ranges.iter().find(|range| range.target > largest && range.target != Target::X16) {
            Some(range) => Err(Error::TargetTooLarge { target: range.target, largest }),
            None => Ok(ranges),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(ranges: &[(u64, Target)]) -> Targets {
        Targets::Pages(ranges.iter().map(|&(pages, target)| PageRange { pages, target }).collect())
    }

    #[test]
    fn ranges_make_up_the_allocation_or_are_refused() {
        let spec = Spec::new(1 << 20);
        let good = ranges(&[(3, Target::X2), (4, Target::X16)]);
        assert_eq!(good.ranges(7, &spec).unwrap().len(), 2);
        for wrong in [good.ranges(8, &spec), good.ranges(6, &spec), ranges(&[]).ranges(1, &spec)] {
            assert!(matches!(wrong, Err(Error::Ranges { what: "their lengths do not add up", .. })));
        }
        let empty = ranges(&[(0, Target::X2), (4, Target::X4)]).ranges(4, &spec);
        assert!(matches!(empty, Err(Error::Ranges { what: "a range is empty", .. })));
        let wraps = ranges(&[(u64::MAX, Target::X2), (5, Target::X4)]).ranges(4, &spec);
        assert!(matches!(wraps, Err(Error::Ranges { .. })));
    }

    #[test]
    fn a_target_above_the_largest_is_refused_but_16x_is_not() {
        let spec = Spec { largest_target: Target::X2, ..Spec::new(1 << 20) };
        let error = Targets::All(Target::X4).ranges(1, &spec);
        assert_eq!(error, Err(Error::TargetTooLarge { target: Target::X4, largest: Target::X2 }));
        assert!(Targets::All(Target::X16).ranges(1, &spec).is_ok());
    }
}
