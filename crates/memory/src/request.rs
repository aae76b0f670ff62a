//! Allocation requests.

use buddy_codec::Codec;
use buddy_core::{Target, TargetRange, Targets};

use crate::{Error, Spec};

/// Parameters of an allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Bytes, at least one and at most the capacity.
    pub bytes: u64,
    /// Trained codec; `None` for uncompressed data.
    pub codec: Option<Codec>,
    /// Targets; ranges count the memory's pages. Ignored without a codec.
    pub targets: Targets,
}

impl Request {
    /// Requests compressed memory.
    pub fn new(bytes: u64, codec: Codec, targets: impl Into<Targets>) -> Self {
        Self { bytes, codec: Some(codec), targets: targets.into() }
    }

    /// Requests compressed memory with one target per range of pages.
    pub fn by_pages(bytes: u64, codec: Codec, ranges: Vec<TargetRange>) -> Self {
        Self::new(bytes, codec, Targets::Pages(ranges))
    }

    /// Requests uncompressed memory, on the device only and without metadata.
    pub fn plain(bytes: u64) -> Self {
        Self { bytes, codec: None, targets: Target::Uncompressed.into() }
    }
}

/// Returns the ranges of an allocation of `pages` pages, if the memory admits their targets.
pub(crate) fn ranges(targets: &Targets, pages: u64, spec: &Spec) -> Result<Vec<TargetRange>, Error> {
    let ranges = targets.ranges(pages).map_err(|why| Error::Ranges { page_bytes: spec.page_bytes, why })?;
    let largest = spec.largest_target;
    match ranges.iter().find(|range| range.target > largest && range.target != Target::X16) {
        Some(range) => Err(Error::TargetTooLarge { target: range.target, largest }),
        None => Ok(ranges),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_above_the_largest_is_refused_but_16x_is_not() {
        let spec = Spec { largest_target: Target::X2, ..Spec::new(1 << 20) };
        let error = ranges(&Target::X4.into(), 1, &spec);
        assert_eq!(error, Err(Error::TargetTooLarge { target: Target::X4, largest: Target::X2 }));
        assert!(ranges(&Target::X16.into(), 1, &spec).is_ok());
        assert!(ranges(&Target::Uncompressed.into(), 1, &spec).is_ok());
    }
}
