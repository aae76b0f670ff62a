//! Predicted slowdown of targets on a link, in the record of `buddy profile`.

use serde::{Deserialize, Serialize};

/// The machine and the limit of slowdown by which targets are recommended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkAdvice {
    /// Name of the GPU in `specs/`.
    pub spec: String,
    /// Device-memory bandwidth in GB/s.
    pub device_gb_per_s: f64,
    /// Name of the link to buddy memory.
    pub link: String,
    /// Link bandwidth in GB/s.
    pub link_gb_per_s: f64,
    /// Largest predicted slowdown of any allocation: 0.05 is 5% more time.
    pub max_slowdown: f64,
    /// True if access counts were given; otherwise every entry counts as accessed once.
    pub counted: bool,
    /// Capacity at other limits, by ascending limit.
    pub curve: Vec<CurvePoint>,
}

/// Predicted effect of overflow, in the snapshot where it is largest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkCost {
    /// Share of the accesses that overflow, 0 to 1.
    pub overflow: f64,
    /// Bytes over the link: of one pass over the data, or of all counted accesses.
    pub bytes: u64,
    /// Predicted additional time over that of plain memory: 0.05 is 5%.
    pub slowdown: f64,
}

/// Capacity within one limit of slowdown.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CurvePoint {
    /// Largest predicted slowdown of any allocation.
    pub max_slowdown: f64,
    /// Uncompressed bytes over device bytes, each at its peak snapshot.
    pub ratio: f64,
    /// Predicted slowdown of the program.
    pub slowdown: f64,
}
