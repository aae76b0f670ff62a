//! The threads of a simulation and the work that they share.
//!
//! A window has three steps, each on all threads: SMs issue, L2 serves their requests, SMs take the
//! replies. Between two steps one thread puts requests in order, by cycle, window and SM, and
//! translates addresses. No step depends on the number of threads:
//!
//! - SMs do not affect each other within a window, but for the next block to launch. An SM that
//!   needs one waits until all SMs of lower numbers have ended the window ([`Turns`]).
//! - Slices and channels of one group never use those of another ([`groups`]).

use std::{
    sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    thread,
};

use buddy_trace::{Kernel, Launch};

use crate::{
    Config, Error, Mode,
    bandwidth::{BandwidthServer, TICKS},
    l2::{L2, Operation},
    params::Params,
    request::{Kind, Request, count},
    sm::{NEVER, Sm, SmContext},
    sync::{Meeting, Turns},
};

/// A step of a window, and its times.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Task {
    /// SMs issue from cycle `start` up to `end`; no block is dispatched before tick `floor`.
    Issue { start: u64, end: u64, floor: u64 },
    /// L2 serves its requests, none earlier than tick `floor`.
    Serve { floor: u64 },
    /// SMs take the replies.
    Reply { floor: u64 },
    /// The kernel has ended.
    Stop,
}

/// A request that L2 serves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    /// Tick of the arrival; once served, the tick at which the reply leaves.
    at: u64,
    line: u64,
    home: u16,
    sm: u16,
    sectors: u8,
    operation: Operation,
}

/// A reply to an SM.
#[derive(Debug, Clone, Copy)]
struct Reply {
    request: Request,
    /// Ticks that the request waited for its address translation.
    translation: u64,
    /// The group that served it, and its place there.
    group: u32,
    place: u32,
}

/// SMs of one thread: every one whose number modulo the number of threads is the thread's.
#[derive(Debug)]
pub(crate) struct Share {
    pub(crate) sms: Vec<Sm>,
    /// Requests of the window with their arrival cycles, by SM.
    pub(crate) outbox: Vec<(u64, Request)>,
    replies: Vec<Reply>,
    /// Lowest SM with an error, and its error.
    pub(crate) error: Option<(u16, Error)>,
}

/// A group of L2 slices and the channels behind them.
#[derive(Debug)]
pub(crate) struct Group {
    /// A whole L2, of which only this group's slices are used.
    pub(crate) l2: L2,
    arrivals: Vec<Arrival>,
}

/// State that the threads share.
#[derive(Debug)]
pub(crate) struct Crew {
    pub(crate) params: Params,
    shares: Vec<Mutex<Share>>,
    groups: Vec<RwLock<Group>>,
    /// Group of each slice.
    group_of: Vec<u8>,
    pub(crate) turns: Turns,
    meeting: Meeting,
    task: Mutex<Task>,
    reply_sector_ticks: u64,
}

/// The running kernel: the source of its instructions, and its blocks.
pub(crate) struct Dispatch<'k> {
    pub(crate) kernel: &'k mut dyn Kernel,
    /// Next block to launch, and the number of blocks.
    pub(crate) next_block: u64,
    pub(crate) blocks: u64,
    /// Block dispatcher of the whole GPU.
    pub(crate) dispatcher: BandwidthServer,
}

impl Dispatch<'_> {
    /// Returns whether every block was launched.
    pub(crate) fn is_empty(&self) -> bool {
        self.next_block == self.blocks
    }

    /// Returns the next block and its first cycle. It is asked for at cycle `from`, no earlier than tick
    /// `floor`; the dispatcher takes `interval` ticks for a block.
    pub(crate) fn next(&mut self, floor: u64, from: u64, interval: u64) -> Option<(u64, u64)> {
        let number = self.next_block;
        (!self.is_empty()).then(|| {
            self.next_block += 1;
            let at = self.dispatcher.send(floor, from * TICKS, interval) - interval;
            (number, at.div_ceil(TICKS))
        })
    }
}

/// Locks, also after a panic: the panic itself ends the simulation.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the number of groups of slices that share no state, at most `threads`. Only modes without
/// metadata, link and page migration have more than one. A line's slices in all partitions and the
/// channels behind them belong to one group.
fn groups(config: &Config, threads: usize) -> usize {
    let (slices, partitions, channels) =
        (config.gpu.l2.slices, config.gpu.l2.partitions, config.gpu.dram.channels);
    let apart =
        matches!(config.mode, Mode::Ideal | Mode::Bandwidth | Mode::Compressible) && !config.map.uses_host();
    let whole = slices.is_multiple_of(channels) && channels.is_multiple_of(partitions);
    if apart && whole { threads.min((channels / partitions) as usize) } else { 1 }
}

impl Crew {
    pub(crate) fn new(config: &Config) -> Self {
        let params = Params::new(&config.gpu);
        let sms = config.gpu.core.sms;
        let threads = config.threads.clamp(1, sms as usize);
        let mut shares: Vec<Share> = (0..threads).map(|_| Share::new()).collect();
        for number in 0..sms {
            shares[number as usize % threads].sms.push(Sm::new(number as u16, &params));
        }
        let groups = groups(config, threads);
        let (slices, spec) = (config.gpu.l2.slices, &config.gpu);
        let per_channel = slices / spec.dram.channels;
        let group_of = |slice| (slice % (slices / spec.l2.partitions) / per_channel) as usize % groups;
        Self {
            params,
            shares: shares.into_iter().map(Mutex::new).collect(),
            groups: (0..groups).map(|_| RwLock::new(Group::new(config))).collect(),
            group_of: (0..slices).map(|slice| group_of(slice) as u8).collect(),
            turns: Turns::new(threads),
            meeting: Meeting::new(threads),
            task: Mutex::new(Task::Stop),
            reply_sector_ticks: {
                let reply = f64::from(config.gpu.interconnect.reply_bytes_per_cycle);
                (32.0 / reply * TICKS as f64).round() as u64
            },
        }
    }

    pub(crate) fn threads(&self) -> usize {
        self.shares.len()
    }

    /// Locks every thread's SMs. Only between two steps.
    pub(crate) fn shares(&self) -> Vec<MutexGuard<'_, Share>> {
        self.shares.iter().map(lock).collect()
    }

    /// Locks every group for reading.
    pub(crate) fn groups(&self) -> Vec<RwLockReadGuard<'_, Group>> {
        self.groups.iter().map(|group| group.read().unwrap_or_else(PoisonError::into_inner)).collect()
    }

    fn group(&self, index: usize) -> RwLockWriteGuard<'_, Group> {
        self.groups[index].write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the first group, which has the link.
    pub(crate) fn first_group(&self) -> RwLockWriteGuard<'_, Group> {
        self.group(0)
    }

    /// Sorts the requests that arrive at `cycle` into the groups that serve them and the threads that
    /// take their replies. `translate` returns the ticks that a line waits for its address.
    pub(crate) fn sort<'a>(
        &self,
        requests: impl Iterator<Item = (u64, &'a Request)>,
        mut translate: impl FnMut(u64, u64) -> u64,
    ) {
        let mut shares = self.shares();
        let mut groups: Vec<_> = (0..self.groups.len()).map(|index| self.group(index)).collect();
        let threads = shares.len() as u32;
        for (cycle, request) in requests {
            let mut reply = Reply { request: *request, translation: 0, group: 0, place: 0 };
            if request.kind != Kind::Merge {
                let at = cycle * TICKS;
                reply.translation = translate(at, request.line);
                let home = groups[0].l2.home(request.line);
                let group = self.group_of[home as usize];
                let arrivals = &mut groups[usize::from(group)].arrivals;
                (reply.group, reply.place) = (u32::from(group), arrivals.len() as u32);
                let Request { line, sm, sectors, .. } = *request;
                let operation = request.operation();
                arrivals.push(Arrival { at, line, home: home as u16, sm, sectors, operation });
            }
            shares[(u32::from(request.sm) % threads) as usize].replies.push(reply);
        }
    }

    /// Runs a step on all threads. Only the first thread may call it.
    pub(crate) fn all(&self, task: Task, launch: &Launch, dispatch: &Mutex<Dispatch<'_>>) {
        if let Task::Issue { .. } = task {
            self.turns.begin();
        }
        if let (Task::Serve { .. }, 1) = (task, self.groups.len()) {
            return self.perform(0, task, launch, dispatch);
        }
        *lock(&self.task) = task;
        self.meeting.wait();
        self.perform(0, task, launch, dispatch);
        self.meeting.wait();
    }

    /// Runs every step on a thread other than the first until the kernel's end.
    pub(crate) fn work(&self, thread: usize, launch: &Launch, dispatch: &Mutex<Dispatch<'_>>) {
        let _present = Present { crew: self, thread };
        loop {
            self.meeting.wait();
            let task = *lock(&self.task);
            if let Task::Stop = task {
                return;
            }
            self.perform(thread, task, launch, dispatch);
            self.meeting.wait();
        }
    }

    /// Returns a guard of the first thread that lets the others return from [`Crew::work`].
    pub(crate) fn lead(&self) -> impl Drop + '_ {
        Lead(Present { crew: self, thread: 0 })
    }

    fn perform(&self, thread: usize, task: Task, launch: &Launch, dispatch: &Mutex<Dispatch<'_>>) {
        match task {
            Task::Issue { start, end, floor } => {
                self.issue(thread, (start, end), floor, launch, dispatch);
            }
            Task::Serve { floor } if thread < self.groups.len() => self.group(thread).serve(floor),
            Task::Serve { .. } | Task::Stop => {}
            Task::Reply { floor } => self.reply(thread, floor),
        }
    }

    fn issue(
        &self,
        thread: usize,
        (start, end): (u64, u64),
        floor: u64,
        launch: &Launch,
        dispatch: &Mutex<Dispatch<'_>>,
    ) {
        let mut share = lock(&self.shares[thread]);
        let Share { sms, outbox, error, .. } = &mut *share;
        let (params, turns) = (&self.params, &self.turns);
        let mut out = SmContext { params, launch, dispatch, turns, outbox, end, floor };
        for sm in sms.iter_mut().filter(|sm| sm.next < end) {
            turns.begin_sm(thread, sm.number());
            if let Err(found) = sm.run(start, end, &mut out) {
                *error = Some((sm.number(), found));
                break;
            }
        }
        turns.end(thread);
    }

    fn reply(&self, thread: usize, floor: u64) {
        let mut share = lock(&self.shares[thread]);
        let (groups, threads) = (self.groups(), self.threads() as u32);
        let Share { sms, replies, .. } = &mut *share;
        for Reply { request, translation, group, place } in replies.drain(..) {
            let sm = &mut sms[(u32::from(request.sm) / threads) as usize];
            let Request { line, sectors, load_id, l1_line, .. } = request;
            if request.kind == Kind::Merge {
                let done = sm.fill_time(l1_line);
                sm.complete(load_id, done);
                continue;
            }
            let reply_at = translation + groups[group as usize].arrivals[place as usize].at;
            if matches!(request.kind, Kind::Write | Kind::Reduce) {
                sm.end_store(reply_at.div_ceil(TICKS));
                continue;
            }
            let at = reply_at + self.params.interconnect * TICKS;
            let done = sm.reply.send(floor, at, count(sectors) * self.reply_sector_ticks).div_ceil(TICKS);
            sm.fill(l1_line, line, done);
            sm.complete(load_id, done);
        }
    }

    /// Forgets the requests that were served.
    pub(crate) fn clear_arrivals(&self) {
        (0..self.groups.len()).for_each(|index| self.group(index).arrivals.clear());
    }
}

/// A thread at work. If it panics, the others panic too instead of wait for ever.
struct Present<'a> {
    crew: &'a Crew,
    thread: usize,
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.crew.meeting.leave();
            self.crew.turns.end(self.thread);
        }
    }
}

struct Lead<'a>(Present<'a>);

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        if !thread::panicking() {
            *lock(&self.0.crew.task) = Task::Stop;
            self.0.crew.meeting.wait();
        }
    }
}

impl Share {
    fn new() -> Self {
        Self { sms: Vec::new(), outbox: Vec::new(), replies: Vec::new(), error: None }
    }

    /// Returns the next cycle at which an SM may have work.
    pub(crate) fn next(&self) -> u64 {
        self.sms.iter().map(|sm| sm.next).min().unwrap_or(NEVER)
    }

    /// Returns whether no SM has work left.
    pub(crate) fn is_idle(&self) -> bool {
        self.sms.iter().all(Sm::is_idle)
    }
}

impl Group {
    fn new(config: &Config) -> Self {
        Self { l2: L2::new(config), arrivals: Vec::new() }
    }

    /// Serves the requests in their order.
    fn serve(&mut self, floor: u64) {
        let Self { l2, arrivals } = self;
        for arrival in arrivals {
            let Arrival { at, line, home, sm, sectors, operation } = *arrival;
            arrival.at = l2.access(floor, at, sm, (u32::from(home), line), sectors, operation);
        }
    }
}
