//! Result of a point of a sweep.

use buddy_record::RecordKind;
use buddy_scenario::Scenario;
use buddy_sim::{Mode, Report};
use serde::{Deserialize, Serialize};

/// Result of one point. It has no time, place or speed of its computation, so a point has one
/// record, whichever process made it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// Program bytes divided by device memory used: above 1 with Buddy Compression; `None` with
    /// pinned or Unified Memory.
    pub capacity: Option<f64>,
    /// Share of entries that overflow their targets; `None` in modes that do not compress.
    pub overflow: Option<f64>,
    /// Time and traffic.
    pub report: Report,
}

impl RecordKind for Outcome {
    const KIND: &'static str = "sweep-point";
    const VERSION: u32 = 1;

    fn check(&self) -> Result<(), String> {
        let Self { capacity, overflow, report } = self;
        if let Some(ratio) = capacity.filter(|ratio| !(*ratio > 0.0 && *ratio <= 16.0)) {
            return Err(format!("a capacity of {ratio}x, where no target gives more than 16x"));
        }
        if let Some(share) = overflow.filter(|share| !(0.0..=1.0).contains(share)) {
            return Err(format!("{share} of the entries overflow"));
        }
        if report.seconds < 0.0 { Err(format!("{} seconds", report.seconds)) } else { Ok(()) }
    }
}

impl Outcome {
    /// Creates the result of a scenario.
    pub(crate) fn new(scenario: &Scenario<'_>, report: Report) -> Self {
        let map = &scenario.config.map;
        let capacity = match report.mode {
            Mode::Ideal | Mode::Bandwidth | Mode::Compressible => Some(1.0),
            Mode::Buddy => Some(map.capacity_ratio()),
            Mode::Pinned | Mode::Um => None,
        };
        let compressed = report.mode.compresses();
        Self { capacity, overflow: compressed.then(|| map.overflow_share()), report }
    }
}
