//! Codec and target of a frozen buffer.

use buddy_codec::FrozenHeader;
use buddy_core::{Histogram, Target};
use buddy_profile::{Place, candidates, smallest_buffer};
use pyo3::prelude::*;

use crate::error;

/// Returns the names of the codecs that may be chosen for a frozen buffer.
#[pyfunction]
pub(crate) fn frozen_codecs() -> Vec<&'static str> {
    candidates(Place::Frozen).iter().map(|kind| kind.name()).collect()
}

/// Returns bytes, codec, target and overflowing sectors of the smallest frozen buffer for `bytes` of
/// data with `row` entries per matrix row (0 if not a matrix). `found` has the codecs with their
/// counts of entries by size class. Without a target, at most a share `most_overflow` of the entries
/// may overflow.
#[pyfunction]
pub(crate) fn choose(
    found: Vec<(String, [u64; 6])>,
    bytes: u64,
    row: u32,
    target: Option<&str>,
    most_overflow: f64,
) -> PyResult<(u64, String, &'static str, u32)> {
    let target: Option<Target> = target.map(|name| name.parse().map_err(error::value)).transpose()?;
    let sizes = found.iter().map(|(codec, classes)| {
        Ok((codec.parse().map_err(error::value)?, Histogram { classes: *classes, optimistic_bytes: 0 }))
    });
    let sizes = sizes.collect::<PyResult<Vec<_>>>()?;
    let (codec, _) = sizes.first().cloned().ok_or_else(|| error::value("there is no codec to choose"))?;
    let like = FrozenHeader { codec, target: Target::X1, bytes, row, sectors: 0 };
    let chosen = smallest_buffer(sizes, &like, target, most_overflow)
        .ok_or_else(|| error::value("each choice overflows more sectors than a buffer can hold"))?;
    let word = chosen.codec.word().map_err(error::value)?;
    Ok((chosen.parts().total, word, chosen.target.name(), chosen.sectors))
}
