//! The shared cache: slices that each serve requests in order, over whatever memory lies behind.

use std::{cmp::Reverse, collections::BinaryHeap};

use crate::{
    Config,
    cache::{Cache, UNKNOWN, spread, spread_set},
    memory::Memory,
    pipe::TICKS,
};

/// What a request wants from L2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// The sectors.
    Read,
    /// To write the sectors; those in `full` are overwritten whole.
    Write { full: u8 },
    /// To change the sectors in place.
    Atomic,
}

/// What L2 did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) reads: u64,
    pub(crate) read_hits: u64,
    pub(crate) read_sectors: u64,
    pub(crate) written_sectors: u64,
    pub(crate) evictions: u64,
    /// Ticks that requests waited for their slice.
    pub(crate) wait_ticks: u64,
    /// Ticks between misses and their fills, all added up.
    pub(crate) miss_ticks: u64,
}

#[derive(Debug)]
struct Slice {
    /// The tick from which it can take the next request.
    free: u64,
    /// When the misses in flight end, and how many there may be.
    misses: BinaryHeap<Reverse<u64>>,
    most: usize,
    /// When the last write-backs have their place, a ring: memory takes them in order.
    writes: [u64; WRITES],
    next: usize,
}

/// Write-backs of a slice that memory need not have taken yet.
const WRITES: usize = 32;

#[derive(Debug)]
pub(crate) struct L2 {
    cache: Cache,
    slices: Vec<Slice>,
    sets: u32,
    latency: u64,
    /// Ticks of a slice for a sector, and for an atomic on one.
    sector: u64,
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
            most: spec.misses as usize,
            writes: [0; WRITES],
            next: 0,
        };
        Self {
            cache: Cache::new((sets * spec.slices) as usize, spec.ways as usize),
            slices: (0..spec.slices).map(|_| slice()).collect(),
            sets,
            latency: u64::from(spec.latency_cycles) * TICKS,
            sector: (TICKS as f64 / spec.sectors_per_cycle).round() as u64,
            atomic: u64::from(spec.atomic_cycles) * TICKS,
            memory: Memory::new(config),
            counts: Counts::default(),
        }
    }

    /// Serves a request that arrives at tick `at`; gives the tick at which its answer leaves.
    ///
    /// Requests come in the order of their times, and none before `floor` comes any more.
    #[inline]
    pub(crate) fn access(&mut self, floor: u64, at: u64, line: u64, sectors: u8, want: Want) -> u64 {
        let count = u64::from(sectors.count_ones());
        let index = spread(line, self.slices.len() as u32);
        let set = index * self.sets + spread_set(line, self.sets);
        let slice = &mut self.slices[index as usize];
        let start = at.max(slice.free);
        self.counts.wait_ticks += start - at;
        slice.free = start + count * if want == Want::Atomic { self.atomic } else { self.sector };
        let (place, there) = match self.cache.find(set as usize, line) {
            Some(place) => (Some(place), self.cache.line(place).valid & sectors),
            None => (self.make_room(floor, start, index as usize, set as usize, line), 0),
        };
        let missing = match want {
            Want::Write { full } => sectors & !there & !full,
            _ => sectors & !there,
        };
        self.count(want, count, missing);
        let mut done = start + self.latency;
        if missing != 0 {
            done = done.max(self.miss(floor, start, index as usize, line, missing, place));
        }
        if let Some(place) = place {
            let entry = self.cache.line(place);
            // Sectors that are on their way for somebody else.
            if entry.flight & sectors != 0 && want != (Want::Write { full: sectors }) {
                done = done.max(entry.ready);
            }
            if want != Want::Read {
                entry.valid |= sectors;
                entry.dirty |= sectors;
            }
        }
        done
    }

    #[inline]
    fn count(&mut self, want: Want, sectors: u64, missing: u8) {
        if want == Want::Read {
            self.counts.reads += 1;
            self.counts.read_hits += u64::from(missing == 0);
            self.counts.read_sectors += sectors;
        } else {
            self.counts.written_sectors += sectors;
        }
    }

    /// Gives a line a place; a dirty line that lay there is written back.
    #[inline]
    fn make_room(&mut self, floor: u64, at: u64, slice: usize, set: usize, line: u64) -> Option<usize> {
        let (place, victim) = self.cache.insert(set, line, at)?;
        if let Some(victim) = victim
            && victim.dirty != 0
        {
            self.counts.evictions += 1;
            let done = self.memory.write_back(floor, at, victim.number, victim.dirty, victim.valid);
            self.slices[slice].write(done);
        }
        Some(place)
    }

    /// Fetches what is missing; gives the tick at which it is there. With no place for it, it only passes by.
    fn miss(
        &mut self,
        floor: u64,
        at: u64,
        slice: usize,
        line: u64,
        missing: u8,
        place: Option<usize>,
    ) -> u64 {
        let (memory, latency) = (&mut self.memory, self.latency);
        let mut sectors = missing;
        let ready = self.slices[slice].miss(at, |start| {
            let fill = memory.fetch(floor, start + latency, line, missing);
            sectors = fill.sectors;
            fill.ready
        });
        self.counts.miss_ticks += ready - at;
        if let Some(place) = place {
            let entry = self.cache.line(place);
            let old = if entry.ready > at && entry.ready != UNKNOWN { entry.flight } else { 0 };
            // What was there already, perhaps changed, stays.
            let new = sectors & !entry.valid;
            (entry.flight, entry.ready) = (old | new, ready.max(if old != 0 { entry.ready } else { 0 }));
            entry.valid |= sectors;
        }
        ready
    }

    /// Sectors that memory does not have yet.
    pub(crate) fn dirty_sectors(&self) -> u64 {
        self.cache.dirty_sectors()
    }
}

impl Slice {
    /// Runs a miss once there is room for it, and holds up the slice until then.
    #[inline]
    fn miss(&mut self, at: u64, run: impl FnOnce(u64) -> u64) -> u64 {
        let mut start = at;
        if self.misses.len() == self.most
            && let Some(Reverse(first)) = self.misses.pop()
        {
            start = at.max(first);
            self.free = self.free.max(start);
        }
        let done = run(start);
        self.misses.push(Reverse(done));
        done
    }

    /// Notes a write-back, and holds up the slice while too many wait.
    #[inline]
    fn write(&mut self, done: u64) {
        self.free = self.free.max(self.writes[self.next]);
        self.writes[self.next] = done;
        self.next = (self.next + 1) % WRITES;
    }
}
