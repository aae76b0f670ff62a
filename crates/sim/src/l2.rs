//! The shared cache: slices that each serve requests in order, over whatever memory lies behind.

use std::{cmp::Reverse, collections::BinaryHeap};

use crate::{
    Config,
    cache::{Cache, UNKNOWN, hash_set, hash_slice},
    memory::Memory,
    pipe::TICKS,
    request::count,
};

/// What a request wants from L2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// To read the sectors; those that are missing are fetched.
    Read,
    /// To write the sectors; those in `full` are overwritten whole.
    Write { full: u8 },
    /// To change the sectors in place, in so many passes over the line.
    Atomic { passes: u8 },
}

/// Requests and traffic of L2 since the start, over all slices.
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
    /// The power of two of neighbouring lines in a slice.
    interleave: u32,
    partitions: u32,
    /// Slices of a partition.
    part: u32,
    /// Ticks to another partition and back.
    far: u64,
    /// Sectors that a miss fetches together.
    fetch: u32,
    /// Ticks of a slice for a sector that is read, written, written in part, and for one pass of an atomic.
    sector: u64,
    written: u64,
    partial: u64,
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
            interleave: (spec.interleave_bytes / 128).trailing_zeros(),
            partitions: spec.partitions,
            part: spec.slices / spec.partitions,
            far: u64::from(spec.far_cycles) * TICKS,
            fetch: spec.fetch_bytes / 32,
            sector: (TICKS as f64 / spec.sectors_per_cycle).round() as u64,
            written: (TICKS as f64 / spec.written_sectors_per_cycle).round() as u64,
            partial: (TICKS as f64 * spec.partial_cycles).round() as u64,
            atomic: (TICKS as f64 * spec.atomic_cycles).round() as u64,
            memory: Memory::new(config),
            counts: Counts::default(),
        }
    }

    /// Serves a request of an SM that arrives at tick `at`; gives the tick at which its answer leaves.
    ///
    /// Requests come in the order of their times, and none before `floor` comes any more.
    #[inline]
    pub(crate) fn access(&mut self, floor: u64, at: u64, sm: u16, line: u64, sectors: u8, want: Want) -> u64 {
        let home = hash_slice(line >> self.interleave, self.slices.len() as u32);
        if self.partitions == 1 || home / self.part == u32::from(sm) % self.partitions {
            let (done, missing) = self.serve(floor, at, home, line, sectors, want);
            self.count(want, missing);
            return done;
        }
        let near = (home + self.part) % self.slices.len() as u32;
        if want == Want::Read {
            return self.read_far(floor, at, near, home, line, sectors);
        }
        // A write passes the near slice, and a copy there is one no more.
        let start = self.occupy(near, at, sectors, want);
        let set = self.set(near, line);
        if let Some(place) = self.cache.find(set, line) {
            self.cache.line(place).valid &= !sectors;
        }
        let (done, missing) = self.serve(floor, start, home, line, sectors, want);
        self.count(want, missing);
        done + self.far
    }

    /// Reads through the near slice, which keeps a copy of what lies in another part.
    fn read_far(&mut self, floor: u64, at: u64, near: u32, home: u32, line: u64, sectors: u8) -> u64 {
        let start = self.occupy(near, at, sectors, Want::Read);
        let (place, there) = self.find(floor, start, near, line);
        let missing = sectors & !there;
        let mut done = start + self.latency;
        let mut fetched = 0;
        if missing != 0 {
            let need = self.widen(missing) & !there;
            let (ready, absent) = self.serve(floor, start, home, line, need, Want::Read);
            done = ready + self.far;
            fetched = absent;
            self.fill(place, start, need, done);
        }
        self.count(Want::Read, fetched);
        self.wait(place, sectors, done)
    }

    /// Serves a request in the slice to which its line belongs; gives the tick at which the answer leaves and the
    /// sectors that were missing.
    #[inline]
    fn serve(&mut self, floor: u64, at: u64, slice: u32, line: u64, sectors: u8, want: Want) -> (u64, u8) {
        let start = self.occupy(slice, at, sectors, want);
        let (place, there) = self.find(floor, start, slice, line);
        let missing = match want {
            Want::Write { full } => sectors & !there & !full,
            _ => sectors & !there,
        };
        let mut done = start + self.latency;
        if missing != 0 {
            let need = if want == Want::Read { self.widen(missing) & !there } else { missing };
            done = done.max(self.miss(floor, start, slice as usize, line, need, place));
        }
        if want != (Want::Write { full: sectors }) {
            done = self.wait(place, sectors, done);
        }
        if let Some(place) = place
            && want != Want::Read
        {
            let entry = self.cache.line(place);
            entry.valid |= sectors;
            entry.dirty |= sectors;
        }
        (done, missing)
    }

    /// Takes a slice's time for a request; gives the tick at which it begins.
    #[inline]
    fn occupy(&mut self, slice: u32, at: u64, sectors: u8, want: Want) -> u64 {
        let sent = count(sectors);
        let cost = match want {
            Want::Read => sent * self.sector,
            Want::Write { full } => sent * self.written + count(sectors & !full) * self.partial,
            Want::Atomic { passes } => u64::from(passes).max(sent) * self.atomic,
        };
        match want {
            Want::Read => self.counts.read_sectors += sent,
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

    /// The place of a line in a slice, made if need be, and the sectors that are there.
    #[inline]
    fn find(&mut self, floor: u64, at: u64, slice: u32, line: u64) -> (Option<usize>, u8) {
        let set = self.set(slice, line);
        match self.cache.find(set, line) {
            Some(place) => (Some(place), self.cache.line(place).valid),
            None => (self.make_room(floor, at, slice as usize, set, line), 0),
        }
    }

    /// The sectors that are fetched when some are missing: aligned groups of them.
    #[inline]
    fn widen(&self, missing: u8) -> u8 {
        match self.fetch {
            1 => missing,
            2 => {
                let pairs = (missing | missing >> 1) & 0b0101;
                pairs | pairs << 1
            }
            _ => 0b1111,
        }
    }

    /// The later of a tick and that at which sectors arrive that are on their way for somebody else.
    #[inline]
    fn wait(&mut self, place: Option<usize>, sectors: u8, done: u64) -> u64 {
        let Some(place) = place else { return done };
        let entry = self.cache.line(place);
        if entry.flight & sectors != 0 { done.max(entry.ready) } else { done }
    }

    #[inline]
    fn count(&mut self, want: Want, missing: u8) {
        if want == Want::Read {
            self.counts.reads += 1;
            self.counts.read_hits += u64::from(missing == 0);
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
        self.fill(place, at, sectors, ready);
        ready
    }

    /// Notes sectors that arrive at tick `ready`.
    #[inline]
    fn fill(&mut self, place: Option<usize>, at: u64, sectors: u8, ready: u64) {
        if let Some(place) = place {
            let entry = self.cache.line(place);
            let old = if entry.ready > at && entry.ready != UNKNOWN { entry.flight } else { 0 };
            // What was there already, perhaps changed, stays.
            let new = sectors & !entry.valid;
            (entry.flight, entry.ready) = (old | new, ready.max(if old != 0 { entry.ready } else { 0 }));
            entry.valid |= sectors;
        }
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
        if self.misses.len() < self.most {
            let done = run(at);
            self.misses.push(Reverse(done));
            return done;
        }
        let mut first = self.misses.peek_mut().expect("there may be at least one");
        let start = at.max(first.0);
        self.free = self.free.max(start);
        // In the place of the one that ended: less work than to take it out and put the new one in.
        *first = Reverse(run(start));
        first.0
    }

    /// Notes a write-back, and holds up the slice while too many wait.
    #[inline]
    fn write(&mut self, done: u64) {
        self.free = self.free.max(self.writes[self.next]);
        self.writes[self.next] = done;
        self.next = (self.next + 1) % WRITES;
    }
}
