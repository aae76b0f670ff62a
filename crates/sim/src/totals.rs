//! Counters of L2 and the memory behind it, summed over the groups that threads simulate.

use crate::{dram::Traffic, l2, memory, um};

/// Sums of all groups.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    pub(crate) l2: l2::Counts,
    pub(crate) memory: memory::Counts,
    pub(crate) dram: Traffic,
    /// Busy ticks of all channels.
    pub(crate) dram_busy: u64,
    pub(crate) link: LinkTotals,
    pub(crate) um: um::Counts,
}

/// Traffic of the link.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LinkTotals {
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) wait_ticks: u64,
}

impl Totals {
    /// Adds a group. The link and Unified Memory are used by the first one alone.
    pub(crate) fn add(&mut self, group: &l2::L2) {
        let (counts, memory) = (&group.counts, &group.memory);
        let (l2, dram, behind) = (&mut self.l2, &mut self.dram, &mut self.memory);
        l2.reads += counts.reads;
        l2.read_hits += counts.read_hits;
        l2.read_sectors += counts.read_sectors;
        l2.written_sectors += counts.written_sectors;
        l2.evictions += counts.evictions;
        l2.wait_ticks += counts.wait_ticks;
        l2.miss_ticks += counts.miss_ticks;
        let (traffic, counts) = (&memory.dram.traffic, &memory.counts);
        dram.read_sectors += traffic.read_sectors;
        dram.written_sectors += traffic.written_sectors;
        dram.activations += traffic.activations;
        dram.turnarounds += traffic.turnarounds;
        dram.wait_ticks += traffic.wait_ticks;
        behind.metadata_hits += counts.metadata_hits;
        behind.metadata_misses += counts.metadata_misses;
        behind.accesses += counts.accesses;
        behind.buddy_accesses += counts.buddy_accesses;
        behind.read_modify_writes += counts.read_modify_writes;
        behind.asked_sectors += counts.asked_sectors;
        behind.filled_sectors += counts.filled_sectors;
        self.dram_busy += memory.dram.busy();
        self.link.read_bytes += memory.link.read_bytes;
        self.link.written_bytes += memory.link.written_bytes;
        self.link.wait_ticks += memory.link.wait_ticks;
        let (um, counts) = (&mut self.um, &memory.um.counts);
        um.faults += counts.faults;
        um.batches += counts.batches;
        um.migrated_blocks += counts.migrated_blocks;
        um.evicted_blocks += counts.evicted_blocks;
    }
}
