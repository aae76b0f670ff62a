//! Unified Memory: pages that are not in device memory migrate there when they are touched.
//!
//! A touch of an absent block is a fault. The driver handles faults in batches, each at a fixed cost; a block
//! then crosses the link. Once half of a region is there or on its way, the rest of it follows. When device
//! memory is full, the region that was least recently touched goes back, its dirty blocks over the link.

use crate::{Config, Mode, link::Link, pipe::TICKS};

/// What Unified Memory did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) faults: u64,
    pub(crate) batches: u64,
    pub(crate) migrated_blocks: u64,
    pub(crate) evicted_blocks: u64,
}

/// When a block is usable; [`ABSENT`] where it is not in device memory.
const ABSENT: u64 = u64::MAX;

#[derive(Debug, Clone, Copy)]
struct Region {
    used: u64,
    present: u32,
}

/// Blocks of one allocation.
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
    /// Blocks that device memory holds, and holds now.
    capacity: u64,
    present: u64,
    /// The batch that still takes faults: its start and how many it has.
    batch_start: u64,
    batch_size: u32,
    batch_faults: u32,
    batch_cost: u64,
    /// When the driver has finished the batch.
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
                // Each allocation begins with a region of its own.
                blocks += (bytes.div_ceil(spec.block_bytes) as usize).next_multiple_of(region_blocks);
            }
        }
        let capacity = (blocks as f64 * (1.0 - config.oversubscription)).floor() as u64;
        let mut um = Self {
            ranges,
            ready: vec![ABSENT; blocks],
            dirty: vec![false; blocks],
            regions: vec![Region { used: 0, present: 0 }; blocks / region_blocks.max(1)],
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
        // The program has run before the trace begins: what fits is there, from the lowest address on.
        for block in 0..blocks.min(um.capacity as usize) {
            um.place(block, 0);
        }
        um
    }

    /// Touches a line; gives the tick from which it can be accessed in device memory.
    pub(crate) fn touch(&mut self, floor: u64, at: u64, line: u64, write: bool, link: &mut Link) -> u64 {
        let Some(block) = self.block(line) else { return at };
        let region = block / self.region_blocks;
        self.regions[region].used = at;
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

    /// Puts a fault into the batch that waits, or opens one; gives the tick at which its batch starts.
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
        // The driver waits for the pages of its batch before it takes the next.
        self.driver_free = self.driver_free.max(done);
        self.counts.migrated_blocks += 1;
        self.place(block, done);
    }

    fn place(&mut self, block: usize, ready: u64) {
        self.ready[block] = ready;
        self.present += 1;
        self.regions[block / self.region_blocks].present += 1;
    }

    /// Fetches the rest of a region of which at least half is there.
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

    /// Sends the least recently used region away, but not the one that is being filled.
    fn evict(&mut self, floor: u64, at: u64, keep: usize, link: &mut Link) {
        let candidates = (0..self.regions.len()).filter(|&r| r != keep && self.regions[r].present > 0);
        let Some(oldest) = candidates.min_by_key(|&region| self.regions[region].used) else { return };
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
