//! The load-store unit: one line a cycle, in order, through L1 or past it.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use buddy_trace::Op;

use super::{NEVER, Outside, Sm};
use crate::{
    cache::{UNKNOWN, hash_set},
    coalesce::Transaction,
    request::{Kind, NO_PLACE, Request, count},
};

/// A line that waits for the unit; for shared memory `line` is the number of cycles.
#[derive(Debug, Clone, Copy)]
pub(super) struct Access {
    pub(super) line: u64,
    pub(super) at: u64,
    pub(super) load_id: u32,
    pub(super) op: Op,
    pub(super) sectors: u8,
    pub(super) full: u8,
}

#[derive(Debug)]
pub(super) struct Lsu {
    pub(super) queue: VecDeque<Access>,
    /// The next cycle at which the unit can do something.
    pub(super) next: u64,
    /// It waits for something on its way to arrive.
    pub(super) stalled: bool,
    free: u64,
    port_free: u64,
    /// Room for the lines of one instruction.
    pub(super) touched: Vec<Transaction>,
}

impl Default for Lsu {
    fn default() -> Self {
        let (queue, touched) = (VecDeque::new(), Vec::new());
        Self { queue, next: NEVER, stalled: false, free: 0, port_free: 0, touched }
    }
}

/// Whether an access could be served.
enum Served {
    Yes,
    /// Not before this cycle; [`UNKNOWN`] while that depends on what is on its way.
    NotBefore(u64),
}

impl Sm {
    /// Takes an access: serves it now if nothing is before it, or else queues it.
    #[inline]
    pub(super) fn access(&mut self, access: Access, out: &mut Outside<'_>) {
        let now = access.at.max(self.lsu.free);
        let alone = self.lsu.queue.is_empty() && now < out.requests.end();
        if !alone || !matches!(self.serve(&access, now, out), Served::Yes) {
            self.lsu.queue.push_back(access);
        }
    }

    /// Serves what can be served before cycle `end`.
    pub(super) fn advance_lsu(&mut self, now: u64, end: u64, out: &mut Outside<'_>) {
        self.lsu.stalled = false;
        self.lsu.next = NEVER;
        while let Some(&access) = self.lsu.queue.front() {
            let now = access.at.max(self.lsu.free);
            if now >= end {
                self.lsu.next = now;
                break;
            }
            match self.serve(&access, now, out) {
                Served::Yes => {
                    self.lsu.queue.pop_front();
                }
                Served::NotBefore(UNKNOWN) => {
                    self.lsu.stalled = true;
                    break;
                }
                Served::NotBefore(later) => self.lsu.free = later,
            }
        }
        self.open_memory(self.memory_from(now, out));
    }

    /// Goes on with what waits, if anything does, and says when the next memory instruction may come.
    #[inline]
    pub(super) fn limit_memory(&mut self, now: u64, out: &mut Outside<'_>) {
        if self.lsu.queue.is_empty() {
            let from = self.memory_from(now, out);
            if from > 0 {
                self.open_memory(from);
            }
        } else {
            self.advance_lsu(now, out.requests.end(), out);
        }
    }

    /// The cycle from which memory instructions may be issued: 0 while little waits.
    #[inline]
    fn memory_from(&self, now: u64, out: &Outside<'_>) -> u64 {
        let depth = out.params.lsu_queue;
        match self.lsu.free.checked_sub(depth) {
            _ if self.lsu.queue.len() as u64 >= depth => NEVER,
            Some(from) if from > now => from,
            _ => 0,
        }
    }

    #[inline]
    fn serve(&mut self, access: &Access, now: u64, out: &mut Outside<'_>) -> Served {
        match access.op {
            Op::LoadShared | Op::StoreShared | Op::AtomicShared | Op::Shuffle => {
                self.lsu.free = now + access.line;
                if access.load_id != u32::MAX {
                    let latency = match access.op {
                        Op::AtomicShared => out.params.shared_atomic,
                        Op::Shuffle => out.params.shuffle,
                        _ => out.params.shared,
                    };
                    self.complete(access.load_id, now + latency + access.line - 1);
                }
                Served::Yes
            }
            Op::LoadGlobal => self.serve_load(access, now, out),
            Op::LoadStrong => self.send_load(access, Kind::Read, access.sectors, NO_PLACE, now, out),
            Op::Atomic => self.send_load(access, Kind::Atomic, access.sectors, NO_PLACE, now, out),
            Op::Reduce => self.send_store(access, Kind::Reduce, now, out),
            _ => self.send_store(access, Kind::Write, now, out),
        }
    }

    fn serve_load(&mut self, access: &Access, now: u64, out: &mut Outside<'_>) -> Served {
        let Access { line, sectors, .. } = *access;
        let set = hash_set(line, self.l1_sets) as usize;
        let Some(place) = self.l1.find(set, line) else {
            let from = self.wait_for_mshr(now, out);
            if from >= out.requests.end() {
                return Served::NotBefore(from);
            }
            // Nothing else happens here until then, so that the miss need not be looked up again.
            let now = self.wait_for_mshr(from, out);
            let place = self.l1.insert(set, line, now).map_or(NO_PLACE, |(place, _)| place as u32);
            return self.send_miss(access, sectors, place, now, out);
        };
        let entry = *self.l1.line(place);
        let missing = sectors & !entry.valid;
        if missing != 0 {
            return self.send_miss(access, missing, place as u32, now, out);
        }
        self.lsu.free = now + 1;
        self.counts.l1_loads += 1;
        self.counts.l1_hits += 1;
        self.counts.l1_sectors += count(sectors);
        let hit = now + out.params.l1;
        if entry.flight & sectors == 0 || entry.ready <= now {
            self.complete(access.load_id, hit);
        } else if entry.ready == UNKNOWN {
            self.counts.l1_merged += 1;
            let request =
                Request::new(self.number, Kind::Merge, access.line, 0, 0, access.load_id, place as u32);
            out.requests.push(now + out.params.interconnect, request);
        } else {
            self.counts.l1_merged += 1;
            self.complete(access.load_id, hit.max(entry.ready));
        }
        Served::Yes
    }

    /// Sends an L1 miss and marks its sectors as on their way.
    fn send_miss(
        &mut self,
        access: &Access,
        need: u8,
        place: u32,
        now: u64,
        out: &mut Outside<'_>,
    ) -> Served {
        let sent = self.send_load(access, Kind::Read, need, place, now, out);
        if matches!(sent, Served::Yes) {
            self.counts.l1_loads += 1;
            self.counts.l1_sectors += count(access.sectors);
            self.counts.l1_missed_sectors += count(need);
            if place != NO_PLACE {
                let entry = self.l1.line(place as usize);
                let old = if entry.ready > now { entry.flight } else { 0 };
                (entry.flight, entry.ready) = (old | need, UNKNOWN);
                entry.valid |= need;
            }
        }
        sent
    }

    fn send_load(
        &mut self,
        access: &Access,
        kind: Kind,
        need: u8,
        place: u32,
        now: u64,
        out: &mut Outside<'_>,
    ) -> Served {
        let from = self.wait_for_mshr(now, out);
        if from > now {
            return Served::NotBefore(from);
        }
        if self.lsu.port_free > now {
            return Served::NotBefore(self.lsu.port_free);
        }
        self.misses += 1;
        (self.lsu.free, self.lsu.port_free) = (now + 1, now + 1);
        let request = Request::new(self.number, kind, access.line, need, 0, access.load_id, place);
        out.requests.push(now + out.params.interconnect, request);
        Served::Yes
    }

    fn send_store(&mut self, access: &Access, kind: Kind, now: u64, out: &mut Outside<'_>) -> Served {
        self.stores -= drain(&mut self.store_ends, now, self.stores == out.params.store_limit);
        if self.stores == out.params.store_limit {
            return Served::NotBefore(first(&self.store_ends));
        }
        if self.lsu.port_free > now {
            return Served::NotBefore(self.lsu.port_free);
        }
        self.stores += 1;
        let sectors = count(access.sectors);
        self.counts.stored_sectors += sectors;
        self.lsu.free = now + (sectors * 32).div_ceil(out.params.request_bytes).max(1);
        self.lsu.port_free = self.lsu.free;
        let request =
            Request::new(self.number, kind, access.line, access.sectors, access.full, u32::MAX, NO_PLACE);
        out.requests.push(now + out.params.interconnect, request);
        Served::Yes
    }

    /// The cycle from `now` on at which one more miss may be on its way; [`UNKNOWN`] if that depends on what is.
    #[inline]
    fn wait_for_mshr(&mut self, now: u64, out: &Outside<'_>) -> u64 {
        self.misses -= drain(&mut self.miss_ends, now, self.misses == out.params.mshrs);
        if self.misses < out.params.mshrs { now } else { first(&self.miss_ends) }
    }
}

/// If `full`, takes out what has ended by `now`; gives how many those were.
#[inline]
fn drain(ends: &mut BinaryHeap<Reverse<u64>>, now: u64, full: bool) -> u32 {
    let mut ended = 0;
    while full && ends.peek().is_some_and(|end| end.0 <= now) {
        ends.pop();
        ended += 1;
    }
    ended
}

/// When the first one ends, if that is known.
fn first(ends: &BinaryHeap<Reverse<u64>>) -> u64 {
    ends.peek().map_or(UNKNOWN, |end| end.0)
}
