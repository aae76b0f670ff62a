//! Targets that change at phases of a program.

use serde::{Deserialize, Serialize};

use crate::TargetRange;

/// Targets by phase, and their gain over one set for the whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhasePlan {
    /// Uncompressed bytes over device bytes, each summed over the snapshots.
    pub average_ratio: f64,
    /// Uncompressed bytes over device bytes, each at its peak snapshot.
    pub peak_ratio: f64,
    /// Share of entries that overflow, 0 to 1, averaged over the snapshots.
    pub mean_overflow: f64,
    /// Stored bytes copied by all changes.
    pub bytes_moved: u64,
    /// Totals at every snapshot.
    pub snapshots: Vec<PhaseSnapshot>,
    /// Target changes in the order of the run.
    pub changes: Vec<PhaseChange>,
}

/// Totals over the allocations alive at one snapshot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseSnapshot {
    /// Uncompressed bytes.
    pub bytes: u64,
    /// Device bytes, codec tables included.
    pub device_bytes: u64,
    /// Entries that overflow.
    pub overflowing: u64,
}

/// A change of an allocation's targets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseChange {
    /// Index of the snapshot at which the change applies.
    pub snapshot: usize,
    /// Name of the allocation.
    pub name: String,
    /// Targets from that snapshot on.
    pub ranges: Vec<TargetRange>,
    /// Upper bound on the stored bytes that the change copies.
    pub bytes_moved: u64,
}

impl PhasePlan {
    /// Computes the totals from snapshots and changes.
    pub fn new(snapshots: Vec<PhaseSnapshot>, changes: Vec<PhaseChange>) -> Self {
        let ratio = |bytes: u64, device: u64| if device == 0 { 1.0 } else { bytes as f64 / device as f64 };
        let of = |bytes: fn(&PhaseSnapshot) -> u64| snapshots.iter().map(bytes);
        let (bytes, device) = (|one: &PhaseSnapshot| one.bytes, |one: &PhaseSnapshot| one.device_bytes);
        let share = |one: &PhaseSnapshot| (one.overflowing * 128) as f64 / one.bytes.max(1) as f64;
        Self {
            average_ratio: ratio(of(bytes).sum(), of(device).sum()),
            peak_ratio: ratio(of(bytes).max().unwrap_or(0), of(device).max().unwrap_or(0)),
            mean_overflow: snapshots.iter().map(share).sum::<f64>() / snapshots.len().max(1) as f64,
            bytes_moved: changes.iter().map(|change| change.bytes_moved).sum(),
            snapshots,
            changes,
        }
    }
}
