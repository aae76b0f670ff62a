//! A streaming multiprocessor: warps, warp schedulers, load-store unit and L1.
//!
//! An SM runs alone through a window no longer than the interconnect's latency: no other component
//! can affect it sooner. Within the window, time jumps to the next possible issue.

mod block;
mod issue;
mod lsu;
mod sched;
mod scoreboard;
mod warp;

use std::{cmp::Reverse, collections::BinaryHeap, sync::Mutex};

use buddy_trace::Launch;

use self::{block::Block, lsu::Lsu, sched::WarpScheduler, scoreboard::Scoreboard, warp::Warp};
use crate::{
    Error,
    bandwidth::BandwidthServer,
    cache::Cache,
    crew::Dispatch,
    params::Params,
    request::{NO_LINE, Request},
    stats::SmCounts,
    sync::Turns,
};

/// A time that no known event sets.
pub(crate) const NEVER: u64 = u64::MAX;

/// Shared state that an SM uses while it runs.
pub(crate) struct SmContext<'a, 'k> {
    pub(crate) params: &'a Params,
    pub(crate) launch: &'a Launch,
    /// The kernel and its blocks; no block is dispatched before tick `floor`.
    pub(crate) dispatch: &'a Mutex<Dispatch<'k>>,
    pub(crate) turns: &'a Turns,
    pub(crate) floor: u64,
    /// Requests with their arrival cycles.
    pub(crate) outbox: &'a mut Vec<(u64, Request)>,
    /// End of the window.
    pub(crate) end: u64,
}

/// A load in flight: one request per line.
#[derive(Debug, Clone, Copy, Default)]
struct PendingLoad {
    done: u64,
    requests_left: u16,
    slot: u16,
    dst: u8,
    written: u8,
}

#[derive(Debug)]
pub(crate) struct Sm {
    number: u16,
    warps: Vec<Warp>,
    scoreboard: Scoreboard,
    /// Cycle at which each warp's last indexed constant load completes.
    constant_ready: Vec<u64>,
    /// Rank of each warp in its scheduler's age order.
    ranks: Vec<u8>,
    /// Scheduler of each warp slot.
    sched_of: Vec<u8>,
    scheds: Vec<WarpScheduler>,
    blocks: Vec<Block>,
    live_blocks: u32,
    /// Cycle at which the barrier unit accepts the next arrival.
    barrier_free: u64,
    /// Cycle at which the constant cache delivers the next word.
    constant_free: u64,
    lsu: Lsu,
    l1: Cache,
    l1_sets: u32,
    pending_loads: Vec<PendingLoad>,
    free_load_ids: Vec<u32>,
    /// Loads and stores in flight, and the known completion cycles.
    misses: u32,
    miss_ends: BinaryHeap<Reverse<u64>>,
    stores: u32,
    store_ends: BinaryHeap<Reverse<u64>>,
    pub(crate) reply: BandwidthServer,
    /// Next cycle at which the SM may have work.
    pub(crate) next: u64,
    /// Last cycle at which a warp ended or a store was accepted.
    pub(crate) last: u64,
    pub(crate) counts: SmCounts,
}

impl Sm {
    pub(crate) fn new(number: u16, params: &Params) -> Self {
        let slots = params.warps as usize;
        Self {
            number,
            warps: (0..slots).map(|_| Warp::default()).collect(),
            scoreboard: Scoreboard::new(slots),
            constant_ready: vec![0; slots],
            ranks: vec![0; slots],
            sched_of: (0..params.warps).map(|slot| (slot % params.schedulers) as u8).collect(),
            scheds: (0..params.schedulers).map(|index| WarpScheduler::new(index, params)).collect(),
            blocks: Vec::new(),
            live_blocks: 0,
            barrier_free: 0,
            constant_free: 0,
            lsu: Lsu::default(),
            l1: Cache::new(params.l1_sets as usize, params.l1_ways as usize),
            l1_sets: params.l1_sets,
            pending_loads: Vec::new(),
            free_load_ids: Vec::new(),
            misses: 0,
            miss_ends: BinaryHeap::new(),
            stores: 0,
            store_ends: BinaryHeap::new(),
            reply: BandwidthServer::new(),
            next: NEVER,
            last: 0,
            counts: SmCounts::default(),
        }
    }

    /// Runs from cycle `start` up to, not including, `end`.
    pub(crate) fn run(&mut self, start: u64, end: u64, out: &mut SmContext<'_, '_>) -> Result<(), Error> {
        if !self.lsu.queue.is_empty() {
            self.advance_lsu(start, end, out);
        }
        let mut now = start.max(self.next_issue());
        while now < end {
            for index in 0..self.scheds.len() {
                if self.scheds[index].next <= now {
                    self.step(index, now, out)?;
                }
            }
            now = self.next_issue().max(now + 1);
        }
        self.next = self.next_issue().min(self.lsu.next);
        Ok(())
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// Returns the first cycle at which a scheduler may issue.
    #[inline]
    fn next_issue(&self) -> u64 {
        self.scheds.iter().map(|sched| sched.next).min().unwrap_or(NEVER)
    }

    /// Returns whether no block and no memory access is left.
    pub(crate) fn is_idle(&self) -> bool {
        self.live_blocks == 0 && self.lsu.queue.is_empty()
    }

    /// Ends a kernel: invalidates L1, as software coherence requires.
    pub(crate) fn end_kernel(&mut self) {
        self.l1.clear();
    }

    /// Wakes a warp's scheduler at the warp's ready time.
    #[inline]
    fn wake(&mut self, slot: usize) {
        let sched = &mut self.scheds[usize::from(self.sched_of[slot])];
        let ready = sched.ready(self.ranks[slot]);
        sched.next = sched.next.min(ready);
        self.next = self.next.min(ready);
    }

    fn allocate_load(&mut self, load: PendingLoad) -> u32 {
        if let Some(index) = self.free_load_ids.pop() {
            self.pending_loads[index as usize] = load;
            return index;
        }
        self.pending_loads.push(load);
        self.pending_loads.len() as u32 - 1
    }

    /// Completes one request of a load at cycle `done`; the last one makes the registers ready.
    #[inline]
    pub(crate) fn complete(&mut self, index: u32, done: u64) {
        let load = &mut self.pending_loads[index as usize];
        load.requests_left -= 1;
        load.done = load.done.max(done);
        if load.requests_left > 0 {
            return;
        }
        let PendingLoad { done, slot, dst, written, .. } = *load;
        self.free_load_ids.push(index);
        let slot = usize::from(slot);
        self.write(slot, dst, written, done << 1 | 1);
        let warp = &mut self.warps[slot];
        warp.pending -= 1;
        warp.loaded = warp.loaded.max(done);
        if self.scheds[usize::from(self.sched_of[slot])].ready(self.ranks[slot]) == NEVER {
            self.refresh(slot);
            self.wake(slot);
        }
    }

    /// Sets the arrival cycle of an L1 miss.
    #[inline]
    pub(crate) fn fill(&mut self, l1_line: u32, line: u64, done: u64) {
        self.end_miss(done);
        let l1_line = l1_line as usize;
        if l1_line != NO_LINE as usize && self.l1.holds(l1_line, line) {
            self.l1.line(l1_line).ready = done;
        }
    }

    /// Returns the arrival cycle of a line's sectors in flight.
    pub(crate) fn fill_time(&mut self, l1_line: u32) -> u64 {
        self.l1.line(l1_line as usize).ready
    }

    /// Frees an MSHR at cycle `done`.
    #[inline]
    pub(crate) fn end_miss(&mut self, done: u64) {
        self.miss_ends.push(Reverse(done));
        self.wake_lsu(done);
    }

    /// Records that L2 accepts a store at cycle `done`.
    #[inline]
    pub(crate) fn end_store(&mut self, done: u64) {
        self.store_ends.push(Reverse(done));
        self.last = self.last.max(done);
        self.wake_lsu(done);
    }

    #[inline]
    fn wake_lsu(&mut self, done: u64) {
        if self.lsu.stalled {
            self.lsu.next = self.lsu.next.min(done);
            self.next = self.next.min(done);
        }
    }
}
