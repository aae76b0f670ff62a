//! Counters of a simulation and the record made of them.

use std::collections::BTreeMap;

use buddy_record::RecordKind;
use serde::{Deserialize, Serialize};

use crate::{
    Config, Mode,
    bandwidth::TICKS,
    by_kernel::{ByKernel, KernelSum},
    totals::Totals,
};

/// Reason that a warp scheduler issues nothing in a cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum StallReason {
    Arithmetic,
    Memory,
    Unit,
    MemoryQueue,
    Barrier,
    Empty,
}

/// Event counters of one SM.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SmCounts {
    pub(crate) instructions: u64,
    pub(crate) lanes: u64,
    pub(crate) unknown: u64,
    pub(crate) blocks: u64,
    pub(crate) accesses: u64,
    pub(crate) shared: u64,
    pub(crate) bank_conflicts: u64,
    pub(crate) l1_loads: u64,
    pub(crate) l1_hits: u64,
    pub(crate) l1_merged: u64,
    pub(crate) l1_sectors: u64,
    pub(crate) l1_missed_sectors: u64,
    pub(crate) stored_sectors: u64,
    pub(crate) stalls: [u64; 6],
}

impl SmCounts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.instructions += other.instructions;
        self.lanes += other.lanes;
        self.unknown += other.unknown;
        self.blocks += other.blocks;
        self.accesses += other.accesses;
        self.shared += other.shared;
        self.bank_conflicts += other.bank_conflicts;
        self.l1_loads += other.l1_loads;
        self.l1_hits += other.l1_hits;
        self.l1_merged += other.l1_merged;
        self.l1_sectors += other.l1_sectors;
        self.l1_missed_sectors += other.l1_missed_sectors;
        self.stored_sectors += other.stored_sectors;
        self.stalls.iter_mut().zip(other.stalls).for_each(|(sum, more)| *sum += more);
    }
}

/// Time and instructions of one kernel launch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KernelReport {
    /// Kernel name from the launch.
    pub name: String,
    /// Start cycle.
    pub start: u64,
    /// Duration in cycles.
    pub cycles: u64,
    /// Warp instructions issued.
    pub instructions: u64,
    /// Executions of opcodes without a timing model, by opcode.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unknown_opcodes: BTreeMap<String, u64>,
}

/// The result of a simulation. Ratios are 0 when their denominator is 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "each group says what its fields are")]
pub struct Report {
    pub gpu: String,
    pub link: String,
    pub mode: Mode,
    /// Cycles of all kernels, timed copies and changes of targets.
    pub cycles: u64,
    pub seconds: f64,
    pub copy_cycles: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub change_cycles: u64,
    /// Warp instructions; `ipc` is this per cycle over the whole GPU.
    pub instructions: u64,
    pub thread_instructions: u64,
    /// Warp instructions whose opcode is unknown; each is timed as an integer instruction.
    pub unknown_instructions: u64,
    pub ipc: f64,
    pub blocks: u64,
    pub l1: L1Report,
    pub l2: L2Report,
    pub dram: DramReport,
    pub link_traffic: LinkReport,
    pub buddy: BuddyReport,
    pub um: UmReport,
    pub stalls: StallReport,
    pub kernels: Vec<KernelReport>,
    /// Use of every level over its peak; empty in records of older versions.
    #[serde(default)]
    pub limits: Vec<Limit>,
    /// Stalls, traffic and limit of each kernel, the longest first; empty in records of older versions.
    #[serde(default)]
    pub by_kernel: Vec<KernelSum>,
}

/// Use of one level over its peak, averaged over the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// The level and the direction.
    pub name: String,
    /// Unit of the next two.
    pub unit: String,
    /// Rate that the run reached.
    pub used: f64,
    /// The most that the level can do.
    pub peak: f64,
    /// `used` over `peak`.
    pub share: f64,
}

/// L1 and shared memory: instructions, line lookups and sectors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct L1Report {
    pub memory_instructions: u64,
    pub loads: u64,
    pub hit_rate: f64,
    pub merged: u64,
    pub loaded_sectors: u64,
    pub missed_sectors: u64,
    pub stored_sectors: u64,
    pub shared_instructions: u64,
    pub bank_conflict_cycles: u64,
}

/// L2: requests and sectors. Queue occupancies are mean numbers of requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct L2Report {
    pub reads: u64,
    pub hit_rate: f64,
    pub read_sectors: u64,
    pub written_sectors: u64,
    pub asked_sectors: u64,
    pub filled_sectors: u64,
    pub write_backs: u64,
    pub dirty_sectors_left: u64,
    pub queue_occupancy: f64,
    pub misses_in_flight: f64,
}

/// Device memory: traffic, bandwidth as a share of the peak, and sources of delay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct DramReport {
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub gb_per_s: f64,
    pub peak_share: f64,
    pub bus_busy_share: f64,
    pub activations: u64,
    pub turnarounds: u64,
    pub queue_occupancy: f64,
}

/// Link traffic, seen from the device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct LinkReport {
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub read_gb_per_s: f64,
    pub written_gb_per_s: f64,
    pub queue_occupancy: f64,
}

/// Buddy Compression: the metadata cache, and the fills and write-backs that crossed the link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct BuddyReport {
    pub metadata_hits: u64,
    pub metadata_misses: u64,
    pub metadata_hit_rate: f64,
    pub accesses: u64,
    pub buddy_accesses: u64,
    pub buddy_access_share: f64,
    pub read_modify_writes: u64,
}

/// Unified Memory: page faults, fault batches, and blocks migrated and evicted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct UmReport {
    pub faults: u64,
    pub batches: u64,
    pub migrated_blocks: u64,
    pub evicted_blocks: u64,
}

/// Stall cycles summed over all schedulers, by the reason that their first warp could not issue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct StallReport {
    pub arithmetic: u64,
    pub memory: u64,
    pub unit_busy: u64,
    pub memory_queue: u64,
    pub barrier: u64,
    pub no_warp: u64,
}

impl RecordKind for Report {
    const KIND: &'static str = "simulation";
    const VERSION: u32 = 1;
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl Report {
    /// Returns the executions of opcodes without a timing model, over all kernels.
    pub fn unknown_opcodes(&self) -> BTreeMap<&str, u64> {
        let mut all = BTreeMap::new();
        for (name, count) in self.kernels.iter().flat_map(|kernel| &kernel.unknown_opcodes) {
            *all.entry(name.as_str()).or_default() += count;
        }
        all
    }

    pub(crate) fn new(
        config: &Config,
        cycles: u64,
        (copy_cycles, change_cycles): (u64, u64),
        (sm, totals, dirty_sectors): (&SmCounts, &Totals, u64),
        kernels: Vec<KernelReport>,
        by_kernel: &ByKernel,
    ) -> Self {
        let gpu = &config.gpu;
        let seconds = cycles as f64 / (gpu.core.clock_mhz * 1e6);
        let used = Used {
            instructions: sm.instructions,
            l1_sectors: sm.l1_sectors,
            l2_read_sectors: totals.l2.read_sectors,
            l2_written_sectors: totals.l2.written_sectors,
            dram_bytes: 32 * (totals.dram.read_sectors + totals.dram.written_sectors),
            link_read_bytes: totals.link.read_bytes,
            link_written_bytes: totals.link.written_bytes,
        };
        Self {
            gpu: gpu.name.clone(),
            link: config.link.name.clone(),
            mode: config.mode,
            cycles,
            seconds,
            copy_cycles,
            change_cycles,
            instructions: sm.instructions,
            thread_instructions: sm.lanes,
            unknown_instructions: sm.unknown,
            ipc: share(sm.instructions, cycles),
            blocks: sm.blocks,
            l1: L1Report::new(sm),
            l2: L2Report::new(totals, dirty_sectors, cycles),
            dram: DramReport::new(config, totals, cycles, seconds),
            link_traffic: LinkReport::new(totals, cycles, seconds),
            buddy: BuddyReport::new(totals),
            um: UmReport::new(totals),
            stalls: StallReport::new(sm.stalls),
            kernels,
            limits: limits(&used, cycles, config),
            by_kernel: by_kernel.report(config),
        }
    }
}

/// Traffic of every level in some cycles.
pub(crate) struct Used {
    pub(crate) instructions: u64,
    pub(crate) l1_sectors: u64,
    pub(crate) l2_read_sectors: u64,
    pub(crate) l2_written_sectors: u64,
    pub(crate) dram_bytes: u64,
    pub(crate) link_read_bytes: u64,
    pub(crate) link_written_bytes: u64,
}

/// Returns the use of every level over its peak.
pub(crate) fn limits(used: &Used, cycles: u64, config: &Config) -> Vec<Limit> {
    let (gpu, link) = (&config.gpu, config.link.gb_per_s);
    let limit = |name: &str, unit: &str, used: f64, peak: f64| {
        let share = if peak > 0.0 { used / peak } else { 0.0 };
        Limit { name: name.to_owned(), unit: unit.to_owned(), used, peak, share }
    };
    let seconds = cycles as f64 / (gpu.core.clock_mhz * 1e6);
    let per_s = |bytes: f64| if cycles == 0 { 0.0 } else { bytes / seconds / 1e9 };
    // Gigabytes a second of sectors that move in this number each cycle.
    let rate = |sectors: f64| 32.0 * sectors * gpu.core.clock_mhz / 1e3;
    let (sms, slices) = (f64::from(gpu.core.sms), f64::from(gpu.l2.slices));
    let issue = sms * f64::from(gpu.core.schedulers * gpu.core.issue_width);
    let sectors = |count: u64| per_s(32.0 * count as f64);
    vec![
        limit("issue slots", "instructions a cycle", share(used.instructions, cycles), issue),
        // A line of four sectors each cycle and SM.
        limit("L1 loads", "GB/s", sectors(used.l1_sectors), rate(4.0 * sms)),
        limit("L2 reads", "GB/s", sectors(used.l2_read_sectors), rate(slices * gpu.l2.sectors_per_cycle)),
        limit(
            "L2 writes",
            "GB/s",
            sectors(used.l2_written_sectors),
            rate(slices * gpu.l2.written_sectors_per_cycle),
        ),
        limit("device memory", "GB/s", per_s(used.dram_bytes as f64), gpu.dram_gb_per_s()),
        limit("link, into the GPU", "GB/s", per_s(used.link_read_bytes as f64), link),
        limit("link, out of the GPU", "GB/s", per_s(used.link_written_bytes as f64), link),
    ]
}

/// Returns whether serde omits the count from a record.
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl L1Report {
    fn new(sm: &SmCounts) -> Self {
        Self {
            memory_instructions: sm.accesses,
            loads: sm.l1_loads,
            hit_rate: share(sm.l1_hits, sm.l1_loads),
            merged: sm.l1_merged,
            loaded_sectors: sm.l1_sectors,
            missed_sectors: sm.l1_missed_sectors,
            stored_sectors: sm.stored_sectors,
            shared_instructions: sm.shared,
            bank_conflict_cycles: sm.bank_conflicts,
        }
    }
}

impl L2Report {
    fn new(totals: &Totals, dirty_sectors: u64, cycles: u64) -> Self {
        let (counts, memory) = (&totals.l2, &totals.memory);
        Self {
            reads: counts.reads,
            hit_rate: share(counts.read_hits, counts.reads),
            read_sectors: counts.read_sectors,
            written_sectors: counts.written_sectors,
            asked_sectors: memory.asked_sectors,
            filled_sectors: memory.filled_sectors,
            write_backs: counts.evictions,
            dirty_sectors_left: dirty_sectors,
            queue_occupancy: share(counts.wait_ticks, cycles * TICKS),
            misses_in_flight: share(counts.miss_ticks, cycles * TICKS),
        }
    }
}

impl DramReport {
    fn new(config: &Config, totals: &Totals, cycles: u64, seconds: f64) -> Self {
        let dram = &totals.dram;
        let (read_bytes, written_bytes) = (dram.read_sectors * 32, dram.written_sectors * 32);
        let gb_per_s = if cycles == 0 { 0.0 } else { (read_bytes + written_bytes) as f64 / seconds / 1e9 };
        Self {
            read_bytes,
            written_bytes,
            gb_per_s,
            peak_share: gb_per_s / config.gpu.dram_gb_per_s(),
            bus_busy_share: share(totals.dram_busy, cycles * TICKS * u64::from(config.gpu.dram.channels)),
            activations: dram.activations,
            turnarounds: dram.turnarounds,
            queue_occupancy: share(dram.wait_ticks, cycles * TICKS),
        }
    }
}

impl LinkReport {
    fn new(totals: &Totals, cycles: u64, seconds: f64) -> Self {
        let link = &totals.link;
        let rate = |bytes: u64| if cycles == 0 { 0.0 } else { bytes as f64 / seconds / 1e9 };
        Self {
            read_bytes: link.read_bytes,
            written_bytes: link.written_bytes,
            read_gb_per_s: rate(link.read_bytes),
            written_gb_per_s: rate(link.written_bytes),
            queue_occupancy: share(link.wait_ticks, cycles * TICKS),
        }
    }
}

impl BuddyReport {
    fn new(totals: &Totals) -> Self {
        let counts = &totals.memory;
        Self {
            metadata_hits: counts.metadata_hits,
            metadata_misses: counts.metadata_misses,
            metadata_hit_rate: share(counts.metadata_hits, counts.metadata_hits + counts.metadata_misses),
            accesses: counts.accesses,
            buddy_accesses: counts.buddy_accesses,
            buddy_access_share: share(counts.buddy_accesses, counts.accesses),
            read_modify_writes: counts.read_modify_writes,
        }
    }
}

impl UmReport {
    fn new(totals: &Totals) -> Self {
        let counts = &totals.um;
        Self {
            faults: counts.faults,
            batches: counts.batches,
            migrated_blocks: counts.migrated_blocks,
            evicted_blocks: counts.evicted_blocks,
        }
    }
}

impl StallReport {
    pub(crate) fn new([arithmetic, memory, unit_busy, memory_queue, barrier, no_warp]: [u64; 6]) -> Self {
        Self { arithmetic, memory, unit_busy, memory_queue, barrier, no_warp }
    }
}
