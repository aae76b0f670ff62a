//! The load-store unit: one line per cycle, in order, through L1 or past it.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use buddy_trace::Op;

use super::{NEVER, Sm, SmContext};
use crate::{
    cache::{UNKNOWN, hash_set},
    coalesce::Transaction,
    request::{Kind, NO_LINE, Request, count},
};

/// A line access in the queue; for shared memory `line` is the number of cycles.
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
    /// Next cycle at which the unit has work.
    pub(super) next: u64,
    /// True if the unit waits for an access in flight to complete.
    pub(super) stalled: bool,
    free: u64,
    port_free: u64,
    /// Scratch buffer for the transactions of one instruction.
    pub(super) transactions: Vec<Transaction>,
}

impl Default for Lsu {
    fn default() -> Self {
        let (queue, transactions) = (VecDeque::new(), Vec::new());
        Self { queue, next: NEVER, stalled: false, free: 0, port_free: 0, transactions }
    }
}

/// Outcome of an attempt to serve an access.
enum Outcome {
    Served,
    /// Replay at this cycle; [`UNKNOWN`] if it depends on accesses in flight.
    ReplayAt(u64),
}

impl Sm {
    /// Serves an access now if the queue is empty, else queues it.
    #[inline]
    pub(super) fn access(&mut self, access: Access, out: &mut SmContext<'_, '_>) {
        let now = access.at.max(self.lsu.free);
        let alone = self.lsu.queue.is_empty() && now < out.end;
        if !alone || !matches!(self.serve(&access, now, out), Outcome::Served) {
            self.lsu.queue.push_back(access);
        }
    }

    /// Serves queued accesses up to cycle `end`.
    pub(super) fn advance_lsu(&mut self, now: u64, end: u64, out: &mut SmContext<'_, '_>) {
        self.lsu.stalled = false;
        self.lsu.next = NEVER;
        while let Some(&access) = self.lsu.queue.front() {
            let now = access.at.max(self.lsu.free);
            if now >= end {
                self.lsu.next = now;
                break;
            }
            match self.serve(&access, now, out) {
                Outcome::Served => {
                    self.lsu.queue.pop_front();
                }
                Outcome::ReplayAt(UNKNOWN) => {
                    self.lsu.stalled = true;
                    break;
                }
                Outcome::ReplayAt(later) => self.lsu.free = later,
            }
        }
        self.allow_memory_from(self.memory_allowed_from(now, out));
    }

    /// Advances the queue and sets when the next memory instruction may issue.
    #[inline]
    pub(super) fn limit_memory(&mut self, now: u64, out: &mut SmContext<'_, '_>) {
        if self.lsu.queue.is_empty() {
            let from = self.memory_allowed_from(now, out);
            if from > 0 {
                self.allow_memory_from(from);
            }
        } else {
            self.advance_lsu(now, out.end, out);
        }
    }

    /// Returns the cycle from which memory instructions may issue; 0 if the queue is short.
    #[inline]
    fn memory_allowed_from(&self, now: u64, out: &SmContext<'_, '_>) -> u64 {
        let depth = out.params.lsu_queue;
        match self.lsu.free.checked_sub(depth) {
            _ if self.lsu.queue.len() as u64 >= depth => NEVER,
            Some(from) if from > now => from,
            _ => 0,
        }
    }

    #[inline]
    fn serve(&mut self, access: &Access, now: u64, out: &mut SmContext<'_, '_>) -> Outcome {
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
                Outcome::Served
            }
            Op::LoadGlobal => self.serve_load(access, now, out),
            Op::LoadStrong => self.send_load(access, Kind::Read, access.sectors, NO_LINE, now, out),
            Op::Atomic => self.send_load(access, Kind::Atomic, access.sectors, NO_LINE, now, out),
            Op::Reduce => self.send_store(access, Kind::Reduce, now, out),
            _ => self.send_store(access, Kind::Write, now, out),
        }
    }

    fn serve_load(&mut self, access: &Access, now: u64, out: &mut SmContext<'_, '_>) -> Outcome {
        let Access { line, sectors, .. } = *access;
        let set = hash_set(line, self.l1_sets) as usize;
        let Some(l1_line) = self.l1.find(set, line) else {
            let from = self.wait_for_mshr(now, out);
            if from >= out.end {
                return Outcome::ReplayAt(from);
            }
            // Nothing else happens until `now`, so the tag lookup stays valid.
            let now = self.wait_for_mshr(from, out);
            let l1_line = self.l1.insert(set, line, now).map_or(NO_LINE, |(l1_line, _)| l1_line as u32);
            return self.send_miss(access, sectors, l1_line, now, out);
        };
        let entry = *self.l1.line(l1_line);
        let missing = sectors & !entry.valid;
        if missing != 0 {
            return self.send_miss(access, missing, l1_line as u32, now, out);
        }
        self.lsu.free = now + 1;
        self.counts.l1_loads += 1;
        self.counts.l1_hits += 1;
        self.counts.l1_sectors += count(sectors);
        let hit = now + out.params.l1;
        if entry.in_flight & sectors == 0 || entry.ready <= now {
            self.complete(access.load_id, hit);
        } else if entry.ready == UNKNOWN {
            self.counts.l1_merged += 1;
            let request =
                Request::new(self.number, Kind::Merge, access.line, 0, 0, access.load_id, l1_line as u32);
            out.outbox.push((now + out.params.interconnect, request));
        } else {
            self.counts.l1_merged += 1;
            self.complete(access.load_id, hit.max(entry.ready));
        }
        Outcome::Served
    }

    /// Sends an L1 sector miss and marks its sectors as in flight.
    fn send_miss(
        &mut self,
        access: &Access,
        need: u8,
        l1_line: u32,
        now: u64,
        out: &mut SmContext<'_, '_>,
    ) -> Outcome {
        let sent = self.send_load(access, Kind::Read, need, l1_line, now, out);
        if matches!(sent, Outcome::Served) {
            self.counts.l1_loads += 1;
            self.counts.l1_sectors += count(access.sectors);
            self.counts.l1_missed_sectors += count(need);
            if l1_line != NO_LINE {
                let entry = self.l1.line(l1_line as usize);
                let old = if entry.ready > now { entry.in_flight } else { 0 };
                (entry.in_flight, entry.ready) = (old | need, UNKNOWN);
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
        l1_line: u32,
        now: u64,
        out: &mut SmContext<'_, '_>,
    ) -> Outcome {
        let from = self.wait_for_mshr(now, out);
        if from > now {
            return Outcome::ReplayAt(from);
        }
        if self.lsu.port_free > now {
            return Outcome::ReplayAt(self.lsu.port_free);
        }
        self.misses += 1;
        (self.lsu.free, self.lsu.port_free) = (now + 1, now + 1);
        let request = Request::new(self.number, kind, access.line, need, 0, access.load_id, l1_line);
        out.outbox.push((now + out.params.interconnect, request));
        Outcome::Served
    }

    fn send_store(&mut self, access: &Access, kind: Kind, now: u64, out: &mut SmContext<'_, '_>) -> Outcome {
        self.stores -= drain_ended(&mut self.store_ends, now, self.stores == out.params.store_limit);
        if self.stores == out.params.store_limit {
            return Outcome::ReplayAt(first_end(&self.store_ends));
        }
        if self.lsu.port_free > now {
            return Outcome::ReplayAt(self.lsu.port_free);
        }
        self.stores += 1;
        let sectors = count(access.sectors);
        self.counts.stored_sectors += sectors;
        self.lsu.free = now + (sectors * 32).div_ceil(out.params.request_bytes).max(1);
        self.lsu.port_free = self.lsu.free;
        let request =
            Request::new(self.number, kind, access.line, access.sectors, access.full, u32::MAX, NO_LINE);
        out.outbox.push((now + out.params.interconnect, request));
        Outcome::Served
    }

    /// Returns the first cycle from `now` on with a free MSHR; [`UNKNOWN`] if it depends on misses
    /// in flight.
    #[inline]
    fn wait_for_mshr(&mut self, now: u64, out: &SmContext<'_, '_>) -> u64 {
        self.misses -= drain_ended(&mut self.miss_ends, now, self.misses == out.params.mshrs);
        if self.misses < out.params.mshrs { now } else { first_end(&self.miss_ends) }
    }
}

/// If `full`, removes the completions up to `now` and returns their number.
#[inline]
fn drain_ended(ends: &mut BinaryHeap<Reverse<u64>>, now: u64, full: bool) -> u32 {
    let mut ended = 0;
    while full && ends.peek().is_some_and(|end| end.0 <= now) {
        ends.pop();
        ended += 1;
    }
    ended
}

/// Returns the first known completion.
fn first_end(ends: &BinaryHeap<Reverse<u64>>) -> u64 {
    ends.peek().map_or(UNKNOWN, |end| end.0)
}
