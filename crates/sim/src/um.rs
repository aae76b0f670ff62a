//! Unified Memory: absent pages migrate to device memory on access.
//!
//! An access to an absent block is a fault. The driver handles faults in batches of fixed cost, and
//! each block crosses the link. Once more than half of a region is resident or in flight, the rest
//! is prefetched. When device memory is full, the least recently used region is evicted, its dirty
//! blocks over the link.

use crate::{Config, Mode, bandwidth::TICKS, link::Link};

/// Unified Memory counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) faults: u64,
    pub(crate) batches: u64,
    pub(crate) migrated_blocks: u64,
    pub(crate) evicted_blocks: u64,
}

/// Ready time of a block that is not in device memory.
const ABSENT: u64 = u64::MAX;

#[derive(Debug, Clone, Copy)]
struct Region {
    last_use: u64,
    present: u32,
}

/// Lines and blocks of one allocation.
#[derive(Debug)]
struct Range {
    first_line: u64,
    lines: u64,
    first_block: usize,
}

#[derive(Debug)]
pub(crate) struct Um {
    ranges: Vec<Range>,
    ready: Vec<u64>,
    dirty: Vec<bool>,
    regions: Vec<Region>,
    block_lines: u64,
    region_blocks: usize,
    block_bytes: u64,
    /// Device memory capacity and resident blocks.
    capacity: u64,
    present: u64,
    /// Open fault batch: start tick and number of faults.
    batch_start: u64,
    batch_size: u32,
    batch_faults: u32,
    batch_cost: u64,
    /// Tick at which the driver finishes the batch.
    driver_free: u64,
    pub(crate) counts: Counts,
}

impl Um {
    pub(crate) fn new(config: &Config) -> Self {
        let spec = &config.gpu.um;
        let region_blocks = (spec.region_bytes / spec.block_bytes) as usize;
        let (mut ranges, mut blocks) = (Vec::new(), 0usize);
        if config.mode == Mode::Um {
            for (base, bytes) in config.map.ranges() {
                ranges.push(Range {
                    first_line: base / 128,
                    lines: bytes.div_ceil(128),
                    first_block: blocks,
                });
                // Each allocation begins with a new region.
                blocks += (bytes.div_ceil(spec.block_bytes) as usize).next_multiple_of(region_blocks);
            }
        }
        let capacity = (blocks as f64 * (1.0 - config.oversubscription)).floor() as u64;
        let mut um = Self {
            ranges,
            ready: vec![ABSENT; blocks],
            dirty: vec![false; blocks],
            regions: vec![Region { last_use: 0, present: 0 }; blocks / region_blocks.max(1)],
            block_lines: spec.block_bytes / 128,
            region_blocks,
            block_bytes: spec.block_bytes,
            capacity: capacity.max(region_blocks as u64),
            present: 0,
            batch_start: 0,
            batch_size: u32::MAX,
            batch_faults: spec.batch_faults,
            batch_cost: (spec.batch_us * config.gpu.core.clock_mhz * TICKS as f64) as u64,
            driver_free: 0,
            counts: Counts::default(),
        };
        // Steady state: device memory starts full, from the lowest address on.
        for block in 0..blocks.min(um.capacity as usize) {
            um.make_resident(block, 0);
        }
        um
    }

    /// Accesses a line; returns the tick from which it is in device memory.
    pub(crate) fn access(&mut self, floor: u64, at: u64, line: u64, write: bool, link: &mut Link) -> u64 {
        let Some(block) = self.block(line) else { return at };
        let region = block / self.region_blocks;
        self.regions[region].last_use = at;
        self.dirty[block] |= write;
        if self.ready[block] == ABSENT {
            self.counts.faults += 1;
            let start = self.join_batch(at) + self.batch_cost;
            self.migrate(floor, start, block, link);
            self.prefetch(floor, start, region, link);
        }
        self.ready[block].max(at)
    }

    #[inline]
    fn block(&self, line: u64) -> Option<usize> {
        let index = self.ranges.partition_point(|range| range.first_line <= line).checked_sub(1)?;
        let range = &self.ranges[index];
        let offset = line - range.first_line;
        (offset < range.lines).then(|| range.first_block + (offset / self.block_lines) as usize)
    }

    /// Adds a fault to the open batch or opens a new one; returns the batch's start tick.
    fn join_batch(&mut self, at: u64) -> u64 {
        if self.batch_size >= self.batch_faults || at > self.batch_start {
            self.counts.batches += 1;
            self.batch_start = self.driver_free.max(at);
            self.driver_free = self.batch_start + self.batch_cost;
            self.batch_size = 0;
        }
        self.batch_size += 1;
        self.batch_start
    }

    fn migrate(&mut self, floor: u64, at: u64, block: usize, link: &mut Link) {
        if self.present >= self.capacity {
            self.evict(floor, at, block / self.region_blocks, link);
        }
        let done = link.read(floor, at, self.block_bytes);
        // The driver finishes a batch's migrations before it starts the next.
        self.driver_free = self.driver_free.max(done);
        self.counts.migrated_blocks += 1;
        self.make_resident(block, done);
    }

    fn make_resident(&mut self, block: usize, ready: u64) {
        self.ready[block] = ready;
        self.present += 1;
        self.regions[block / self.region_blocks].present += 1;
    }

    /// Prefetches the rest of a region of which more than half is resident.
    fn prefetch(&mut self, floor: u64, at: u64, region: usize, link: &mut Link) {
        if 2 * self.regions[region].present as usize <= self.region_blocks {
            return;
        }
        for block in region * self.region_blocks..(region + 1) * self.region_blocks {
            if self.ready[block] == ABSENT {
                self.migrate(floor, at, block, link);
            }
        }
    }

    /// Evicts the least recently used region other than `keep`, the one being filled.
    fn evict(&mut self, floor: u64, at: u64, keep: usize, link: &mut Link) {
        let candidates = (0..self.regions.len()).filter(|&r| r != keep && self.regions[r].present > 0);
        let Some(oldest) = candidates.min_by_key(|&region| self.regions[region].last_use) else { return };
        for block in oldest * self.region_blocks..(oldest + 1) * self.region_blocks {
            if self.ready[block] != ABSENT {
                self.ready[block] = ABSENT;
                self.present -= 1;
                self.counts.evicted_blocks += 1;
                if std::mem::take(&mut self.dirty[block]) {
                    link.write(floor, at, self.block_bytes);
                }
            }
        }
        self.regions[oldest].present = 0;
    }
}
