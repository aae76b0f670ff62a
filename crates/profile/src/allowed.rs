//! Limits on the overflow of an allocation.

use buddy_core::{Histogram, SECTOR_BYTES, Target, conservative_target};

/// Limits on what an allocation overflows in every snapshot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Allowed {
    /// Share of entries that overflow.
    pub(crate) overflow: f64,
    /// Link bytes per byte of data.
    pub(crate) link: f64,
    /// Share of entries that overflow in each block of pages.
    pub(crate) block: f64,
}

impl Allowed {
    /// Returns the paper's limit, which the link does not affect.
    pub(crate) fn threshold(overflow: f64) -> Self {
        Self { overflow, link: f64::INFINITY, block: f64::INFINITY }
    }

    /// Returns the largest target within the limits in every snapshot.
    pub(crate) fn target(&self, snapshots: &[Histogram], zeros: bool) -> Target {
        let most = conservative_target(snapshots, self.overflow, zeros);
        let within = |target: &Target| snapshots.iter().all(|one| link_share(one, *target) <= self.link);
        let smaller = Target::ALL.into_iter().rev().skip_while(|target| *target != most);
        { smaller }.find(within).unwrap_or(Target::X1)
    }
}

/// Returns the bytes over the link when every entry is accessed once.
pub(crate) fn link_bytes(sizes: &Histogram, target: Target) -> u64 {
    sizes.sectors(target).1 * SECTOR_BYTES as u64
}

/// Returns link bytes per byte of data when every entry is accessed once.
pub(crate) fn link_share(sizes: &Histogram, target: Target) -> f64 {
    link_bytes(sizes, target) as f64 / sizes.bytes().max(1) as f64
}
