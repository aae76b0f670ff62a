//! A multiprocessor: its warps, its schedulers, its load-store unit and L1.
//!
//! An SM runs alone through a window of time no longer than the interconnect's latency: nothing that another
//! part does in the window can reach it sooner. Inside, time jumps from one possible issue to the next.

mod block;
mod issue;
mod lsu;
mod sched;
mod scoreboard;
mod warp;

use std::{cmp::Reverse, collections::BinaryHeap};

use buddy_trace::{Kernel, Launch};

use self::{block::Block, lsu::Lsu, sched::WarpScheduler, scoreboard::Scoreboard, warp::Warp};
use crate::{
    Error,
    cache::Cache,
    params::Params,
    pipe::BandwidthServer,
    request::{NO_PLACE, Requests},
    stats::SmCounts,
};

/// A time that does not come by itself.
pub(crate) const NEVER: u64 = u64::MAX;

/// What an SM needs from outside while it runs.
pub(crate) struct Outside<'a> {
    pub(crate) params: &'a Params,
    pub(crate) kernel: &'a mut dyn Kernel,
    pub(crate) launch: &'a Launch,
    /// The next block to launch, and how many there are.
    pub(crate) next_block: &'a mut u64,
    pub(crate) blocks: u64,
    pub(crate) requests: &'a mut Requests,
    /// Starts the blocks of the whole GPU; nothing is asked of it before the tick `floor` any more.
    pub(crate) dispatcher: &'a mut BandwidthServer,
    pub(crate) floor: u64,
}

/// A load whose parts are on their way.
#[derive(Debug, Clone, Copy, Default)]
struct PendingLoad {
    done: u64,
    parts: u16,
    slot: u16,
    dst: u8,
    written: u8,
}

#[derive(Debug)]
pub(crate) struct Sm {
    number: u16,
    warps: Vec<Warp>,
    scoreboard: Scoreboard,
    /// When each warp has the last constant whose place a register says.
    constants: Vec<u64>,
    /// The place of each warp in its scheduler's order.
    places: Vec<u8>,
    /// The scheduler of each slot.
    sched_of: Vec<u8>,
    scheds: Vec<WarpScheduler>,
    blocks: Vec<Block>,
    live_blocks: u32,
    /// When the barriers take the next arrival.
    barrier_free: u64,
    /// When the constant cache gives the next word.
    constant_free: u64,
    lsu: Lsu,
    l1: Cache,
    l1_sets: u32,
    pending_loads: Vec<PendingLoad>,
    free_load_ids: Vec<u32>,
    /// Loads and stores on their way, and when those whose end is known end.
    misses: u32,
    miss_ends: BinaryHeap<Reverse<u64>>,
    stores: u32,
    store_ends: BinaryHeap<Reverse<u64>>,
    pub(crate) reply: BandwidthServer,
    /// The next cycle at which something can happen here.
    pub(crate) next: u64,
    /// The last cycle at which a warp ended or a store was taken.
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
            constants: vec![0; slots],
            places: vec![0; slots],
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
    pub(crate) fn run(&mut self, start: u64, end: u64, out: &mut Outside<'_>) -> Result<(), Error> {
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

    /// The first cycle at which a scheduler may have something to issue.
    #[inline]
    fn next_issue(&self) -> u64 {
        self.scheds.iter().map(|sched| sched.next).min().unwrap_or(NEVER)
    }

    /// Whether neither a block nor a store is left here.
    pub(crate) fn is_idle(&self) -> bool {
        self.live_blocks == 0 && self.lsu.queue.is_empty()
    }

    /// Ends a kernel: L1 forgets everything, as software coherence demands.
    pub(crate) fn end_kernel(&mut self) {
        self.l1.clear();
    }

    /// Lets a scheduler look at a warp from its ready time on.
    #[inline]
    fn wake(&mut self, slot: usize) {
        let sched = &mut self.scheds[usize::from(self.sched_of[slot])];
        let ready = sched.ready(self.places[slot]);
        sched.next = sched.next.min(ready);
        self.next = self.next.min(ready);
    }

    fn new_pending_load(&mut self, load_id: PendingLoad) -> u32 {
        if let Some(index) = self.free_load_ids.pop() {
            self.pending_loads[index as usize] = load_id;
            return index;
        }
        self.pending_loads.push(load_id);
        self.pending_loads.len() as u32 - 1
    }

    /// One part of a load is there at cycle `done`; with the last one its registers are ready.
    #[inline]
    pub(crate) fn complete(&mut self, index: u32, done: u64) {
        let load_id = &mut self.pending_loads[index as usize];
        load_id.parts -= 1;
        load_id.done = load_id.done.max(done);
        if load_id.parts > 0 {
            return;
        }
        let PendingLoad { done, slot, dst, written, .. } = *load_id;
        self.free_load_ids.push(index);
        let slot = usize::from(slot);
        self.write(slot, dst, written, done << 1 | 1);
        let warp = &mut self.warps[slot];
        warp.pending -= 1;
        warp.loaded = warp.loaded.max(done);
        if self.scheds[usize::from(self.sched_of[slot])].ready(self.places[slot]) == NEVER {
            self.refresh(slot);
            self.wake(slot);
        }
    }

    /// The sectors of an L1 miss arrive at cycle `done`.
    #[inline]
    pub(crate) fn fill(&mut self, place: u32, line: u64, done: u64) {
        self.end_miss(done);
        let place = place as usize;
        if place != NO_PLACE as usize && self.l1.holds(place, line) {
            self.l1.line(place).ready = done;
        }
    }

    /// When the sectors that a place of L1 waits for arrive.
    pub(crate) fn arrival(&mut self, place: u32) -> u64 {
        self.l1.line(place as usize).ready
    }

    /// A load that was on its way ends at cycle `done`.
    #[inline]
    pub(crate) fn end_miss(&mut self, done: u64) {
        self.miss_ends.push(Reverse(done));
        self.wake_lsu(done);
    }

    /// A store is taken by L2 at cycle `done`.
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
