//! The L2 cache: slices that each serve requests in order, backed by [`Memory`].

use std::{cmp::Reverse, collections::BinaryHeap};

use crate::{
    Config,
    bandwidth::TICKS,
    cache::{Cache, UNKNOWN, hash_set, hash_slice},
    memory::Memory,
    request::count,
};

/// Operation of an L2 request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Reads the sectors; missing ones are fetched.
    Read,
    /// Writes the sectors; those in `full` are overwritten whole.
    Write { full: u8 },
    /// Modifies the sectors in place, in `passes` passes over the line.
    Atomic { passes: u8 },
}

/// Request and traffic counters, over all slices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) reads: u64,
    pub(crate) read_hits: u64,
    pub(crate) read_sectors: u64,
    pub(crate) written_sectors: u64,
    pub(crate) evictions: u64,
    /// Ticks that requests waited for their slice.
    pub(crate) wait_ticks: u64,
    /// Ticks between misses and their fills, summed.
    pub(crate) miss_ticks: u64,
}

#[derive(Debug)]
struct Slice {
    /// Tick from which it accepts the next request.
    free: u64,
    /// MSHRs: completion ticks of the misses in flight, at most `mshrs`.
    misses: BinaryHeap<Reverse<u64>>,
    mshrs: usize,
    /// Write-back queue, a ring: ticks at which memory accepts the last write-backs.
    write_backs: [u64; WRITE_BACK_QUEUE],
    next_write_back: usize,
}

/// Length of a slice's write-back queue.
const WRITE_BACK_QUEUE: usize = 32;

#[derive(Debug)]
pub(crate) struct L2 {
    cache: Cache,
    slices: Vec<Slice>,
    sets: u32,
    latency: u64,
    /// log2 of the consecutive lines in a slice.
    interleave: u32,
    partitions: u32,
    slices_per_partition: u32,
    /// Round-trip ticks to the other partition.
    cross_partition: u64,
    /// Sectors fetched together on a miss.
    fetch: u32,
    /// Slice ticks per sector read, sector written, partially written sector, and atomic pass.
    sector: u64,
    written: u64,
    partial_write: u64,
    atomic: u64,
    pub(crate) memory: Memory,
    pub(crate) counts: Counts,
}

impl L2 {
    pub(crate) fn new(config: &Config) -> Self {
        let spec = &config.gpu.l2;
        let sets = (spec.bytes / 128 / u64::from(spec.ways) / u64::from(spec.slices)) as u32;
        let slice = || Slice {
            free: 0,
            misses: BinaryHeap::new(),
            mshrs: spec.misses as usize,
            write_backs: [0; WRITE_BACK_QUEUE],
            next_write_back: 0,
        };
        Self {
            cache: Cache::new((sets * spec.slices) as usize, spec.ways as usize),
            slices: (0..spec.slices).map(|_| slice()).collect(),
            sets,
            latency: u64::from(spec.latency_cycles) * TICKS,
            interleave: (spec.interleave_bytes / 128).trailing_zeros(),
            partitions: spec.partitions,
            slices_per_partition: spec.slices / spec.partitions,
            cross_partition: u64::from(spec.far_cycles) * TICKS,
            fetch: spec.fetch_bytes / 32,
            sector: (TICKS as f64 / spec.sectors_per_cycle).round() as u64,
            written: (TICKS as f64 / spec.written_sectors_per_cycle).round() as u64,
            partial_write: (TICKS as f64 * spec.partial_cycles).round() as u64,
            atomic: (TICKS as f64 * spec.atomic_cycles).round() as u64,
            memory: Memory::new(config),
            counts: Counts::default(),
        }
    }

    /// Returns the home slice of a line.
    #[inline]
    pub(crate) fn home(&self, line: u64) -> u32 {
        hash_slice(line >> self.interleave, self.slices.len() as u32)
    }

    /// Serves a request of an SM that arrives at tick `at`; returns the tick at which its reply
    /// leaves.
    ///
    /// Requests arrive in time order, none before `floor`. A line comes with its home slice.
    #[inline]
    pub(crate) fn access(
        &mut self,
        floor: u64,
        at: u64,
        sm: u16,
        (home, line): (u32, u64),
        sectors: u8,
        operation: Operation,
    ) -> u64 {
        if self.partitions == 1 || home / self.slices_per_partition == u32::from(sm) % self.partitions {
            let (done, missing) = self.serve(floor, at, home, line, sectors, operation);
            self.count(operation, missing);
            return done;
        }
        let near_slice = (home + self.slices_per_partition) % self.slices.len() as u32;
        if operation == Operation::Read {
            return self.read_remote(floor, at, near_slice, home, line, sectors);
        }
        // A write goes through the near slice and invalidates its copy.
        let start = self.reserve(near_slice, at, line, sectors, operation);
        let set = self.set(near_slice, line);
        if let Some(index) = self.cache.find(set, line) {
            self.cache.line(index).valid &= !sectors;
        }
        let (done, missing) = self.serve(floor, start, home, line, sectors, operation);
        self.count(operation, missing);
        done + self.cross_partition
    }

    /// Reads a line of another partition through the near slice, which keeps a copy.
    fn read_remote(
        &mut self,
        floor: u64,
        at: u64,
        near_slice: u32,
        home: u32,
        line: u64,
        sectors: u8,
    ) -> u64 {
        let start = self.reserve(near_slice, at, line, sectors, Operation::Read);
        let (index, valid) = self.find(floor, start, near_slice, line);
        let missing = sectors & !valid;
        let mut done = start + self.latency;
        let mut fetched = 0;
        if missing != 0 {
            let need = self.fetch_mask(missing) & !valid;
            let (ready, absent) = self.serve(floor, start, home, line, need, Operation::Read);
            done = ready + self.cross_partition;
            fetched = absent;
            self.fill(index, start, need, done);
        }
        self.count(Operation::Read, fetched);
        self.wait_for_fill(index, sectors, done)
    }

    /// Serves a request in the line's home slice; returns the tick at which the reply leaves and
    /// the missing sectors.
    #[inline]
    fn serve(
        &mut self,
        floor: u64,
        at: u64,
        slice: u32,
        line: u64,
        sectors: u8,
        operation: Operation,
    ) -> (u64, u8) {
        let start = self.reserve(slice, at, line, sectors, operation);
        let (index, valid) = self.find(floor, start, slice, line);
        let missing = match operation {
            Operation::Write { full } => sectors & !valid & !full,
            _ => sectors & !valid,
        };
        let mut done = start + self.latency;
        if missing != 0 {
            let need = if operation == Operation::Read { self.fetch_mask(missing) & !valid } else { missing };
            done = done.max(self.miss(floor, start, slice as usize, line, need, index));
        }
        if operation != (Operation::Write { full: sectors }) {
            done = self.wait_for_fill(index, sectors, done);
        }
        if let Some(index) = index
            && operation != Operation::Read
        {
            let entry = self.cache.line(index);
            entry.valid |= sectors;
            entry.dirty |= sectors;
        }
        (done, missing)
    }

    /// Reserves slice time for a request; returns its start tick.
    #[inline]
    fn reserve(&mut self, slice: u32, at: u64, line: u64, sectors: u8, operation: Operation) -> u64 {
        let sent = count(sectors);
        let cost = match operation {
            Operation::Read => self.memory.read_in_l2(line, sent) * self.sector,
            Operation::Write { full } => sent * self.written + count(sectors & !full) * self.partial_write,
            Operation::Atomic { passes } => u64::from(passes).max(sent) * self.atomic,
        };
        match operation {
            Operation::Read => self.counts.read_sectors += sent,
            _ => self.counts.written_sectors += sent,
        }
        let slice = &mut self.slices[slice as usize];
        let start = at.max(slice.free);
        self.counts.wait_ticks += start - at;
        slice.free = start + cost;
        start
    }

    #[inline]
    fn set(&self, slice: u32, line: u64) -> usize {
        (slice * self.sets + hash_set(line, self.sets)) as usize
    }

    /// Looks up or allocates a line in a slice; returns its index and valid sectors.
    #[inline]
    fn find(&mut self, floor: u64, at: u64, slice: u32, line: u64) -> (Option<usize>, u8) {
        let set = self.set(slice, line);
        match self.cache.find(set, line) {
            Some(index) => (Some(index), self.cache.line(index).valid),
            None => (self.allocate(floor, at, slice as usize, set, line), 0),
        }
    }

    /// Returns the sectors to fetch on a miss: aligned groups of `fetch`.
    #[inline]
    fn fetch_mask(&self, missing: u8) -> u8 {
        match self.fetch {
            1 => missing,
            2 => {
                let pairs = (missing | missing >> 1) & 0b0101;
                pairs | pairs << 1
            }
            _ => 0b1111,
        }
    }

    /// Returns the later of `done` and the arrival of requested sectors that are already in flight.
    #[inline]
    fn wait_for_fill(&mut self, index: Option<usize>, sectors: u8, done: u64) -> u64 {
        let Some(index) = index else { return done };
        let entry = self.cache.line(index);
        if entry.in_flight & sectors != 0 { done.max(entry.ready) } else { done }
    }

    #[inline]
    fn count(&mut self, operation: Operation, missing: u8) {
        if operation == Operation::Read {
            self.counts.reads += 1;
            self.counts.read_hits += u64::from(missing == 0);
        }
    }

    /// Allocates a line; a dirty victim is written back.
    #[inline]
    fn allocate(&mut self, floor: u64, at: u64, slice: usize, set: usize, line: u64) -> Option<usize> {
        let (index, victim) = self.cache.insert(set, line, at)?;
        if let Some(victim) = victim
            && victim.dirty != 0
        {
            self.counts.evictions += 1;
            let done = self.memory.write_back(floor, at, victim.number, victim.dirty, victim.valid);
            self.slices[slice].queue_write_back(done);
        }
        Some(index)
    }

    /// Fetches the missing sectors; returns their arrival tick. Without a line they bypass the
    /// cache.
    fn miss(
        &mut self,
        floor: u64,
        at: u64,
        slice: usize,
        line: u64,
        missing: u8,
        index: Option<usize>,
    ) -> u64 {
        let (memory, latency) = (&mut self.memory, self.latency);
        let mut sectors = missing;
        let ready = self.slices[slice].miss(at, |start| {
            let fill = memory.fetch(floor, start + latency, line, missing);
            sectors = fill.sectors;
            fill.ready
        });
        self.counts.miss_ticks += ready - at;
        self.fill(index, at, sectors, ready);
        ready
    }

    /// Marks sectors as arriving at tick `ready`.
    #[inline]
    fn fill(&mut self, index: Option<usize>, at: u64, sectors: u8, ready: u64) {
        if let Some(index) = index {
            let entry = self.cache.line(index);
            let old = if entry.ready > at && entry.ready != UNKNOWN { entry.in_flight } else { 0 };
            // Valid sectors, perhaps dirty, are kept.
            let new = sectors & !entry.valid;
            (entry.in_flight, entry.ready) = (old | new, ready.max(if old != 0 { entry.ready } else { 0 }));
            entry.valid |= sectors;
        }
    }

    /// Returns the number of dirty sectors.
    pub(crate) fn dirty_sectors(&self) -> u64 {
        self.cache.dirty_sectors()
    }
}

impl Slice {
    /// Issues a miss once an MSHR is free, and blocks the slice until then.
    #[inline]
    fn miss(&mut self, at: u64, run: impl FnOnce(u64) -> u64) -> u64 {
        if self.misses.len() < self.mshrs {
            let done = run(at);
            self.misses.push(Reverse(done));
            return done;
        }
        let mut first = self.misses.peek_mut().expect("mshrs is at least one");
        let start = at.max(first.0);
        self.free = self.free.max(start);
        // Overwrites the completed miss: cheaper than a pop and a push.
        *first = Reverse(run(start));
        first.0
    }

    /// Queues a write-back, and blocks the slice while the queue is full.
    #[inline]
    fn queue_write_back(&mut self, done: u64) {
        self.free = self.free.max(self.write_backs[self.next_write_back]);
        self.write_backs[self.next_write_back] = done;
        self.next_write_back = (self.next_write_back + 1) % WRITE_BACK_QUEUE;
    }
}
