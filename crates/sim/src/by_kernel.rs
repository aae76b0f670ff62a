//! Counters of the launches of each kernel: the difference between the GPU's counters at the end and
//! at the start of a launch.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    Config,
    stats::{SmCounts, StallReport, Used, limits},
    totals::Totals,
};

/// Counters that are summed over the launches of a kernel.
const COUNTERS: usize = 14;

/// All launches of the kernels of one name. A dirty sector that a later kernel evicts from L2 counts
/// as written by that kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the group says what its fields are")]
pub struct KernelSum {
    pub name: String,
    pub launches: u64,
    pub cycles: u64,
    /// Warp instructions.
    pub instructions: u64,
    pub stalls: StallReport,
    pub l1_loaded_bytes: u64,
    pub l2_read_bytes: u64,
    pub l2_written_bytes: u64,
    pub dram_read_bytes: u64,
    pub dram_written_bytes: u64,
    pub link_read_bytes: u64,
    pub link_written_bytes: u64,
    /// The level with the largest use over its peak, by its name in [`Report::limits`](crate::Report).
    pub limit: String,
    /// That use over its peak.
    pub limit_share: f64,
}

/// The GPU's counters at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Counters([u64; COUNTERS]);

impl Counters {
    pub(crate) fn new(sm: &SmCounts, totals: &Totals) -> Self {
        let (link, dram) = (&totals.link, &totals.dram);
        let [arithmetic, memory, unit_busy, memory_queue, barrier, no_warp] = sm.stalls;
        Self([
            sm.instructions,
            sm.l1_sectors,
            totals.l2.read_sectors,
            totals.l2.written_sectors,
            dram.read_sectors,
            dram.written_sectors,
            link.read_bytes,
            link.written_bytes,
            arithmetic,
            memory,
            unit_busy,
            memory_queue,
            barrier,
            no_warp,
        ])
    }

    /// Returns the warp instructions.
    pub(crate) fn instructions(&self) -> u64 {
        self.0[0]
    }
}

/// Launches, cycles and counters by the kernel's name.
#[derive(Debug, Default)]
pub(crate) struct ByKernel(BTreeMap<String, (u64, u64, Counters)>);

impl ByKernel {
    /// Adds a launch, with the counters at its start and end.
    pub(crate) fn add(&mut self, name: &str, cycles: u64, start: &Counters, end: &Counters) {
        let sum = self.0.entry(name.to_owned()).or_default();
        (sum.0, sum.1) = (sum.0 + 1, sum.1 + cycles);
        for (sum, (end, start)) in sum.2.0.iter_mut().zip(end.0.iter().zip(start.0)) {
            *sum += end - start;
        }
    }

    /// Returns the sums, the longest first.
    pub(crate) fn report(&self, config: &Config) -> Vec<KernelSum> {
        let of = |(name, (launches, cycles, counters)): (&String, &(u64, u64, Counters))| {
            sum(name, *launches, *cycles, counters, config)
        };
        let mut all: Vec<KernelSum> = self.0.iter().map(of).collect();
        all.sort_by_key(|kernel| std::cmp::Reverse(kernel.cycles));
        all
    }
}

fn sum(name: &str, launches: u64, cycles: u64, counters: &Counters, config: &Config) -> KernelSum {
    let [
        instructions,
        l1,
        l2_read,
        l2_written,
        dram_read,
        dram_written,
        link_read,
        link_written,
        stalls @ ..,
    ] = counters.0;
    let used = Used {
        instructions,
        l1_sectors: l1,
        l2_read_sectors: l2_read,
        l2_written_sectors: l2_written,
        dram_bytes: 32 * (dram_read + dram_written),
        link_read_bytes: link_read,
        link_written_bytes: link_written,
    };
    let limit =
        limits(&used, cycles, config).into_iter().max_by(|one, other| one.share.total_cmp(&other.share));
    let limit = limit.expect("a GPU has levels");
    KernelSum {
        name: name.to_owned(),
        launches,
        cycles,
        instructions,
        stalls: StallReport::new(stalls),
        l1_loaded_bytes: 32 * l1,
        l2_read_bytes: 32 * l2_read,
        l2_written_bytes: 32 * l2_written,
        dram_read_bytes: 32 * dram_read,
        dram_written_bytes: 32 * dram_written,
        link_read_bytes: link_read,
        link_written_bytes: link_written,
        limit: limit.name,
        limit_share: limit.share,
    }
}
