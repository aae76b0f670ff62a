//! The record of `buddy profile`: compressibility of a run over time, and the effect of targets on
//! it.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{AllocationInfo, LinkAdvice, LinkCost, RecordKind, RunInfo, TargetTable};
use buddy_core::{Histogram, PageMap, PhasePlan};

/// Rule by which targets are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// One target for the whole program.
    Naive,
    /// One target per allocation, up to 4x.
    Allocation,
    /// One target per allocation; 16x if it stays mostly zero.
    #[serde(rename = "allocation-16x")]
    Allocation16x,
    /// One target per range of pages; 16x if most of its entries fit in 8 bytes.
    Page,
    /// One target per range of pages, within a limit of predicted slowdown on a link.
    Link,
    /// Targets that fit a given device memory and minimise link time.
    Plan,
}

impl Policy {
    /// Every policy, simplest first.
    pub const ALL: [Self; 6] =
        [Self::Naive, Self::Allocation, Self::Allocation16x, Self::Page, Self::Link, Self::Plan];

    /// Every policy that needs only a threshold, no machine.
    pub const BY_THRESHOLD: [Self; 4] = [Self::Naive, Self::Allocation, Self::Allocation16x, Self::Page];

    /// Returns the name used in tables, files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Naive => "naive",
            Self::Allocation => "allocation",
            Self::Allocation16x => "allocation-16x",
            Self::Page => "page",
            Self::Link => "link",
            Self::Plan => "plan",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|policy| policy.name() == text);
        found.ok_or_else(|| format!("unknown policy '{text}'"))
    }
}

/// Measured sizes of a run and the targets chosen from them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The program, its allocations and its snapshots.
    pub run: RunInfo,
    /// The Buddy Threshold: largest share of entries that a target may overflow to buddy memory.
    pub threshold: f64,
    /// Sizes of each allocation, in the order of the run.
    pub allocations: Vec<AllocationProfile>,
    /// Compression ratio with the paper's eight sizes, per snapshot; `None` if all memory is zero.
    pub optimistic: Vec<Option<f64>>,
    /// The same ratio over all snapshots.
    pub optimistic_ratio: Option<f64>,
    /// Compression ratio with every entry at its own class, without targets or overflow, in the
    /// worst snapshot. `None` if all memory is zero.
    pub best_ratio: Option<f64>,
    /// Outcome of each policy.
    pub policies: Vec<PolicyOutcome>,
    /// Ratio and overflow at other thresholds, with the policy `allocation-16x`.
    pub sweep: Vec<SweepPoint>,
    /// Comparison of codecs with the policy `allocation-16x`.
    pub codecs: Vec<CodecOutcome>,
    /// Policy of the chosen targets.
    pub policy: Policy,
    /// Requested codec: a name, or `auto`.
    pub codec: String,
    /// Targets and codecs chosen for each allocation.
    pub targets: TargetTable,
    /// The machine of the recommendation; `None` in records without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<LinkAdvice>,
    /// The plan, if a device memory was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanOutcome>,
    /// Targets by phase with the chosen policy and codecs; `None` for a single snapshot or with a
    /// plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phases: Option<PhasePlan>,
    /// Result of the check on a functional memory, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<Verification>,
}

impl RecordKind for Profile {
    const KIND: &'static str = "profile";
    const VERSION: u32 = 1;

    fn check(&self) -> Result<(), String> {
        self.run.validate().map_err(|error| error.to_string())?;
        self.targets.validate().map_err(|error| error.to_string())?;
        let (allocations, snapshots) = (&self.run.allocations, self.run.snapshots.len());
        if self.allocations.len() != allocations.len() || self.targets.allocations.len() != allocations.len()
        {
            return Err(format!("the run has {} allocations, the profile another number", allocations.len()));
        }
        for (info, found) in allocations.iter().zip(&self.allocations) {
            found.check(info, snapshots).map_err(|why| format!("allocation {:?}: {why}", info.name))?;
        }
        let lengths = self.policies.iter().map(|policy| policy.overflow.len()).chain([self.optimistic.len()]);
        match { lengths }.find(|&length| length != snapshots) {
            Some(length) => Err(format!("the run has {snapshots} snapshots, but {length} were measured")),
            None => Ok(()),
        }
    }
}

impl AllocationProfile {
    fn check(&self, info: &AllocationInfo, snapshots: usize) -> Result<(), String> {
        let lists = self.histograms.values();
        let lengths = lists.map(Vec::len).chain([self.overflowing.len()]);
        if let Some(length) = { lengths }.find(|&length| length != snapshots) {
            return Err(format!("{length} of {snapshots} snapshots were measured"));
        }
        let entries = info.entries();
        let alive = |histogram: &&Histogram| **histogram != Histogram::default();
        if self.histograms.values().flatten().filter(alive).any(|histogram| !histogram.fits(entries)) {
            return Err(format!("the sizes are not of its {entries} entries"));
        }
        match &self.pages {
            Some(map) if !map.fits(entries) => Err("its page map has rows of other lengths".to_owned()),
            _ => Ok(()),
        }
    }
}

/// Returns the best outcome by a threshold: largest ratio, then least overflow, then first.
///
/// Skips naive outcomes, whose threshold holds only for the whole program, and links and plans,
/// which follow other rules.
pub fn best_outcome(outcomes: &[PolicyOutcome]) -> Option<&PolicyOutcome> {
    let counts = |one: &&PolicyOutcome| !matches!(one.policy, Policy::Naive | Policy::Link | Policy::Plan);
    let better = |best: &&PolicyOutcome, one: &&PolicyOutcome| {
        (one.ratio, -one.mean_overflow) > (best.ratio, -best.mean_overflow)
    };
    outcomes.iter().filter(counts).reduce(|best, one| if better(&best, &one) { one } else { best })
}

impl Profile {
    /// Returns the recommended outcome: the largest ratio within the limit of slowdown, or the best
    /// by the threshold if the record has no machine.
    pub fn best(&self) -> Option<&PolicyOutcome> {
        let within = self.policies.iter().filter(|one| one.policy == Policy::Link);
        let best = within.reduce(|best, one| if one.ratio > best.ratio { one } else { best });
        best.or_else(|| best_outcome(&self.policies))
    }

    /// Returns the outcome of a policy with a codec.
    pub fn outcome(&self, policy: Policy, codec: &str) -> Option<&PolicyOutcome> {
        self.policies.iter().find(|outcome| outcome.policy == policy && outcome.codec == codec)
    }
}

/// Sizes of one allocation over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllocationProfile {
    /// Entries by size class per snapshot, keyed by codec; empty where not alive.
    pub histograms: BTreeMap<String, Vec<Histogram>>,
    /// Codecs that `auto` chooses from, with the device bytes of their parameters. Empty in older
    /// records.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub candidates: BTreeMap<String, u64>,
    /// Codec with the lowest cost for this allocation.
    pub auto: String,
    /// Overflowing entries per snapshot at the chosen target.
    pub overflowing: Vec<u64>,
    /// Device bytes at the chosen target, codec parameters included.
    pub device_bytes: u64,
    /// Description of the codec's parameters; empty if it has none or the record predates the
    /// field.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub learned: String,
    /// Sampled pages of the last snapshot that has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<PageMap>,
    /// Codec of `pages`. Empty in older records, which means the paper's codec.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pages_codec: String,
    /// Predicted effect of its overflow on the link; `None` in records without a machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkCost>,
}

/// Memory use of a run at its targets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyOutcome {
    /// Policy that chose the targets.
    pub policy: Policy,
    /// Codec: a name, or `auto`.
    pub codec: String,
    /// Device bytes at the peak snapshot, codec tables included, metadata excluded.
    pub device_bytes: u64,
    /// Uncompressed bytes over device bytes, each at its peak snapshot.
    pub ratio: f64,
    /// Share of live entries that overflow, per snapshot.
    pub overflow: Vec<f64>,
    /// Mean of `overflow`, 0 to 1.
    pub mean_overflow: f64,
    /// Maximum of `overflow`, 0 to 1.
    pub worst_overflow: f64,
    /// Number of page ranges with one target, over all allocations.
    pub ranges: u64,
    /// Predicted effect of its overflow on the link; `None` in records without a machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkCost>,
}

/// Result at one threshold of the sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SweepPoint {
    /// Codec: a name, or `auto`.
    pub codec: String,
    /// Buddy Threshold of the targets.
    pub threshold: f64,
    /// Uncompressed bytes over device bytes at the largest footprint.
    pub ratio: f64,
    /// Share of entries that overflow, averaged over the snapshots.
    pub mean_overflow: f64,
}

/// Result with one codec for all allocations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodecOutcome {
    /// Codec: a name, or `auto`.
    pub codec: String,
    /// Compression ratio with the paper's eight sizes, over all snapshots.
    pub optimistic_ratio: Option<f64>,
    /// Compression ratio at the threshold.
    pub ratio: f64,
    /// Share of entries that overflow, averaged over the snapshots.
    pub mean_overflow: f64,
}

/// Plan for a given device memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanOutcome {
    /// Requested device memory in bytes.
    pub device_memory: u64,
    /// Name of the GPU in `specs/`.
    pub spec: String,
    /// Device-memory bandwidth in GB/s.
    pub device_gb_per_s: f64,
    /// Name of the link to buddy memory.
    pub link: String,
    /// Link bandwidth in GB/s.
    pub link_gb_per_s: f64,
    /// True if access counts were given; otherwise one streaming pass is assumed.
    pub counted: bool,
    /// Device bytes of the plan, page rounding and metadata included.
    pub device_bytes: u64,
    /// Time of the accesses on the device alone.
    pub device_seconds: f64,
    /// Time of the overflow accesses on the link.
    pub link_seconds: f64,
    /// Lower bound on the link time of any plan.
    pub bound_seconds: f64,
    /// True if the search proved the plan optimal.
    pub optimal: bool,
    /// Smallest larger device memory at which one allocation would lose less link time; `None` if
    /// nothing is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_bytes: Option<u64>,
}

/// Result of loading one snapshot into a functional memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verification {
    /// Index of the loaded snapshot.
    pub snapshot: usize,
    /// Entries written and read back bit for bit.
    pub entries: u64,
    /// Entries that overflowed, as predicted.
    pub overflowing: u64,
    /// Device sectors written, and read, as predicted.
    pub device_sectors: u64,
    /// Buddy sectors written, and read, as predicted.
    pub buddy_sectors: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_names_round_trip() {
        for policy in Policy::ALL {
            assert_eq!(policy.name().parse(), Ok(policy));
            assert_eq!(serde_json::to_value(policy).unwrap(), policy.name());
        }
        assert!("best".parse::<Policy>().is_err());
    }
}
