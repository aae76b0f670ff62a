//! Targets that follow a program: what a profile plans by phase.

use serde::{Deserialize, Serialize};

use crate::TargetRange;

/// Targets by phase, and what they give beside one set for the whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhasePlan {
    /// Bytes of entries over bytes of device memory, each summed over the snapshots.
    pub average_ratio: f64,
    /// Bytes of entries over bytes of device memory, each in the snapshot that has most of them.
    pub peak_ratio: f64,
    /// Mean over the snapshots of the share of entries that overflow, 0 to 1.
    pub mean_overflow: f64,
    /// Stored bytes that all changes copy, once each.
    pub bytes_moved: u64,
    /// What holds at every snapshot.
    pub snapshots: Vec<PhaseSnapshot>,
    /// What changes, in the order of the run.
    pub changes: Vec<PhaseChange>,
}

/// All allocations that are alive at one snapshot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseSnapshot {
    /// Bytes of their entries.
    pub bytes: u64,
    /// Their bytes in device memory, tables of codecs included.
    pub device_bytes: u64,
    /// Entries that overflow.
    pub overflowing: u64,
}

/// An allocation that gets other targets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseChange {
    /// The snapshot at which it gets them.
    pub snapshot: usize,
    /// The allocation.
    pub name: String,
    /// Its targets from there on.
    pub ranges: Vec<TargetRange>,
    /// Stored bytes that the change copies at most.
    pub bytes_moved: u64,
}

impl PhasePlan {
    /// Sums up what holds and what changes.
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
