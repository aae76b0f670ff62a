//! The record of `buddy profile`: how the memory of a run compresses over time, and what targets make of it.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{AllocationInfo, Histogram, PageMap, PhasePlan, RecordKind, RunInfo, TargetTable};

/// How targets are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// One for the whole program.
    Naive,
    /// One for each allocation, up to 4x.
    Allocation,
    /// One for each allocation, 16x where it stays mostly zero.
    #[serde(rename = "allocation-16x")]
    Allocation16x,
    /// One for each range of pages, 16x where most of their entries fit 8 bytes.
    Page,
    /// What fits a device memory and loses the least time to the link.
    Plan,
}

impl Policy {
    /// Every policy, the simplest first.
    pub const ALL: [Self; 5] = [Self::Naive, Self::Allocation, Self::Allocation16x, Self::Page, Self::Plan];

    /// The name in tables, files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Naive => "naive",
            Self::Allocation => "allocation",
            Self::Allocation16x => "allocation-16x",
            Self::Page => "page",
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

/// What was found in a run, and what was chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The program, its allocations and the moments of its snapshots.
    pub run: RunInfo,
    /// The Buddy Threshold: the share of entries that a target may leave to buddy memory.
    pub threshold: f64,
    /// Each allocation, in the order of the run.
    pub allocations: Vec<AllocationProfile>,
    /// The ratio of the paper's eight sizes in each snapshot; none where all memory is zero.
    pub optimistic: Vec<Option<f64>>,
    /// The same of all snapshots together.
    pub optimistic_ratio: Option<f64>,
    /// The ratio if each entry took only the bytes of its own class, in the snapshot where that is smallest: what
    /// compression alone gives, without targets and overflow. None where all memory is zero.
    pub best_ratio: Option<f64>,
    /// What each policy gives.
    pub policies: Vec<PolicyOutcome>,
    /// The ratio and the overflow at other thresholds, with the policy `allocation-16x`.
    pub sweep: Vec<SweepPoint>,
    /// The codecs side by side, with the policy `allocation-16x`.
    pub codecs: Vec<CodecOutcome>,
    /// The policy whose targets were chosen.
    pub policy: Policy,
    /// The codec that was asked for: a name, or `auto`.
    pub codec: String,
    /// What the policy chose for each allocation, as the file of targets has it.
    pub targets: TargetTable,
    /// The plan, where a device memory was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanOutcome>,
    /// Targets by phase with the policy and the codecs that were chosen; none for one snapshot, or where there is a plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phases: Option<PhasePlan>,
    /// What a working memory said of the prediction, where that was asked for.
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
            Some(length) => Err(format!("the run has {snapshots} snapshots, but {length} were looked at")),
            None => Ok(()),
        }
    }
}

impl AllocationProfile {
    fn check(&self, info: &AllocationInfo, snapshots: usize) -> Result<(), String> {
        let lists = self.histograms.values();
        let lengths = lists.map(Vec::len).chain([self.overflowing.len()]);
        if let Some(length) = { lengths }.find(|&length| length != snapshots) {
            return Err(format!("{length} of {snapshots} snapshots were looked at"));
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

/// The best of some outcomes: the largest ratio, then the least overflow, then the first. The naive policy holds the threshold
/// only for the whole program, so that a single allocation may overflow altogether, and a plan follows other rules: neither counts.
pub fn best_outcome(outcomes: &[PolicyOutcome]) -> Option<&PolicyOutcome> {
    let counts = |one: &&PolicyOutcome| !matches!(one.policy, Policy::Naive | Policy::Plan);
    let better = |best: &&PolicyOutcome, one: &&PolicyOutcome| {
        (one.ratio, -one.mean_overflow) > (best.ratio, -best.mean_overflow)
    };
    outcomes.iter().filter(counts).reduce(|best, one| if better(&best, &one) { one } else { best })
}

impl Profile {
    /// The best of what was measured.
    pub fn best(&self) -> Option<&PolicyOutcome> {
        best_outcome(&self.policies)
    }

    /// What a policy gives with a codec.
    pub fn outcome(&self, policy: Policy, codec: &str) -> Option<&PolicyOutcome> {
        self.policies.iter().find(|outcome| outcome.policy == policy && outcome.codec == codec)
    }
}

/// One allocation over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllocationProfile {
    /// Its entries by size class in each snapshot, by the codec's name; none where it is not alive.
    pub histograms: BTreeMap<String, Vec<Histogram>>,
    /// The codec that suits it best.
    pub auto: String,
    /// Overflowing entries in each snapshot at what was chosen for it.
    pub overflowing: Vec<u64>,
    /// Bytes of device memory at what was chosen for it, with what its codec keeps beside the entries.
    pub device_bytes: u64,
    /// What its codec learned of it, in words; empty where it learns nothing, or a record does not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub learned: String,
    /// Some of its pages in the last snapshot that has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<PageMap>,
    /// The codec of these pages: the chosen one, or the paper's where only pages of that are known. Empty in a record from before
    /// there was a choice: the paper's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pages_codec: String,
}

/// What targets make of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyOutcome {
    /// How they were chosen.
    pub policy: Policy,
    /// With which codec: a name, or `auto`.
    pub codec: String,
    /// Bytes in device memory, tables of codecs included, without the four bits of metadata per entry, in the snapshot that has most of them.
    pub device_bytes: u64,
    /// Bytes of entries for each byte in device memory, each in the snapshot that has most of them.
    pub ratio: f64,
    /// The share of the entries alive that need buddy memory, in each snapshot.
    pub overflow: Vec<f64>,
    /// Mean of the overflow over the snapshots, 0 to 1.
    pub mean_overflow: f64,
    /// Overflow of the worst snapshot, 0 to 1.
    pub worst_overflow: f64,
    /// Ranges of pages with one target, in all allocations.
    pub ranges: u64,
}

/// One threshold of the sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SweepPoint {
    /// With which codec: a name, or `auto`.
    pub codec: String,
    /// The Buddy Threshold that the targets were chosen with.
    pub threshold: f64,
    /// Bytes of the program over device bytes, at its largest footprint.
    pub ratio: f64,
    /// The share of entries that need buddy memory, the mean over the snapshots.
    pub mean_overflow: f64,
}

/// One codec for all allocations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodecOutcome {
    /// Its name, or `auto`.
    pub codec: String,
    /// The ratio of the paper's eight sizes, of all snapshots together.
    pub optimistic_ratio: Option<f64>,
    /// The ratio at the threshold.
    pub ratio: f64,
    /// The share of entries that need buddy memory, the mean over the snapshots.
    pub mean_overflow: f64,
}

/// What fits a device memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanOutcome {
    /// The device memory asked for.
    pub device_memory: u64,
    /// Name of the GPU in `specs/`.
    pub spec: String,
    /// GB/s of its memory.
    pub device_gb_per_s: f64,
    /// The link to buddy memory.
    pub link: String,
    /// GB/s of the link.
    pub link_gb_per_s: f64,
    /// Whether the counts of accesses were given; otherwise one streaming pass over everything is assumed.
    pub counted: bool,
    /// Device bytes that the plan takes, whole pages and metadata included.
    pub device_bytes: u64,
    /// Seconds that the accesses take on the device alone.
    pub device_seconds: f64,
    /// Seconds that they take on the link.
    pub link_seconds: f64,
    /// Seconds on the link that no plan can be below.
    pub bound_seconds: f64,
    /// Whether no better plan exists, proved by search.
    pub optimal: bool,
    /// The least device memory, more than what the plan takes, with which one allocation alone would lose less; none where
    /// nothing is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_bytes: Option<u64>,
}

/// What a working memory said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verification {
    /// Which snapshot was loaded.
    pub snapshot: usize,
    /// Entries that were written and read back, bit for bit.
    pub entries: u64,
    /// Those that needed buddy memory, as predicted.
    pub overflowing: u64,
    /// Sectors of device memory that were written, and read, as predicted.
    pub device_sectors: u64,
    /// Sectors of buddy memory that were written, and read, as predicted.
    pub buddy_sectors: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        for policy in Policy::ALL {
            assert_eq!(policy.name().parse(), Ok(policy));
            assert_eq!(serde_json::to_value(policy).unwrap(), policy.name());
        }
        assert!("best".parse::<Policy>().is_err());
    }
}
