//! What is asked of a memory: how many bytes, and how to keep them.

use buddy_codec::Codec;
use buddy_core::{Target, TargetRange, Targets};

use crate::{Error, Spec};

/// A wish for an allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Bytes that it holds, more than none and no more than the memory's capacity.
    pub bytes: u64,
    /// The codec, ready for this data; none where nothing of it is compressed.
    pub codec: Option<Codec>,
    /// How much of each entry lies on the device; ranges are of the memory's pages. Without a codec they do not count.
    pub targets: Targets,
}

impl Request {
    /// Compressed data with its targets.
    pub fn new(bytes: u64, codec: Codec, targets: impl Into<Targets>) -> Self {
        Self { bytes, codec: Some(codec), targets: targets.into() }
    }

    /// Compressed data with a target for each range of the memory's pages.
    pub fn by_pages(bytes: u64, codec: Codec, ranges: Vec<TargetRange>) -> Self {
        Self::new(bytes, codec, Targets::Pages(ranges))
    }

    /// Data that is kept as it is, all on the device, without metadata.
    pub fn plain(bytes: u64) -> Self {
        Self { bytes, codec: None, targets: Target::Uncompressed.into() }
    }
}

/// The ranges of an allocation of `pages` pages, as far as the memory admits their targets.
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
