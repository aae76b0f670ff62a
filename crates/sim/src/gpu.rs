//! The whole GPU, simulated in windows of time: first all SMs run, then L2 serves their requests.
//!
//! A window is as long as the interconnect's latency. A request sent in one window reaches L2 in
//! the next, so serving L2 after all SMs keeps requests in time order. Every server returns the
//! completion time at once, so replies need no events. Each step of a window runs on all threads
//! ([`crate::crew`]).

use std::{
    cell::Cell,
    mem,
    sync::{Arc, Mutex},
    thread,
};

use buddy_core::SECTOR_BYTES;
use buddy_trace::{Application, Kernel, Launch, Step};

use crate::{
    Config, Error,
    bandwidth::{BandwidthServer, TICKS},
    by_kernel::{ByKernel, Counters},
    crew::{Crew, Dispatch, Share, Task},
    request::Requests,
    sm::{NEVER, Sm, SmContext},
    stats::{KernelReport, Report, SmCounts},
    timeline::{Sample, Timeline},
    tlb::Tlb,
    totals::Totals,
};

/// A GPU that runs kernels one after another.
#[derive(Debug)]
pub struct Simulator {
    config: Config,
    crew: Arc<Crew>,
    requests: Requests,
    now: u64,
    /// Block dispatcher of the whole GPU.
    dispatcher: BandwidthServer,
    tlb: Tlb,
    kernels: Vec<KernelReport>,
    by_kernel: ByKernel,
    copy_cycles: u64,
    change_cycles: u64,
    timeline: Option<Timeline>,
}

impl Simulator {
    /// Creates a GPU at cycle 0 with empty caches.
    pub fn new(config: Config) -> Self {
        let crew = Crew::new(&config);
        Self {
            requests: Requests::new(crew.params.interconnect),
            crew: Arc::new(crew),
            now: 0,
            dispatcher: BandwidthServer::new(),
            tlb: Tlb::new(&config.gpu),
            kernels: Vec::new(),
            by_kernel: ByKernel::default(),
            copy_cycles: 0,
            change_cycles: 0,
            timeline: config.sample_cycles.map(Timeline::new),
            config,
        }
    }

    /// Copies bytes from the host; takes time only if `Config::timed_copies` is set.
    pub fn copy(&mut self, bytes: u64) {
        if self.config.timed_copies {
            self.timed_copy(bytes);
        }
    }

    fn timed_copy(&mut self, bytes: u64) {
        let cycles = self.crew.first_group().l2.memory.link.copy(bytes).div_ceil(TICKS);
        self.copy_cycles += cycles;
        self.now += cycles;
    }

    /// Changes targets between two kernels: reads and writes `bytes` stored bytes once, at the
    /// bandwidth of device memory.
    pub fn change(&mut self, bytes: u64) {
        let cycles = (2.0 * bytes as f64 / self.config.gpu.dram_bytes_per_cycle()).ceil() as u64;
        self.change_cycles += cycles;
        self.now += cycles;
        let sectors = bytes.div_ceil(SECTOR_BYTES as u64);
        let mut group = self.crew.first_group();
        let traffic = &mut group.l2.memory.dram.traffic;
        traffic.read_sectors += sectors;
        traffic.written_sectors += sectors;
    }

    /// Runs a program to its end. Returns `false` if `keep_on` stopped it. Its copies are always
    /// timed: a program lists only those that are part of its work, not the initial upload.
    ///
    /// # Errors
    /// As [`Simulator::run`].
    pub fn run_application(
        &mut self,
        application: &Application,
        keep_on: &mut dyn FnMut(&Self) -> bool,
    ) -> Result<bool, Error> {
        let completed = Cell::new(true);
        let mut keep_on = |simulator: &Self| {
            completed.set(completed.get() && keep_on(simulator));
            completed.get()
        };
        for step in &application.steps {
            match step {
                Step::Copy { bytes } => self.timed_copy(*bytes),
                Step::Kernel(make) => self.run(make().as_mut(), &mut keep_on)?,
            }
            if !keep_on(self) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Runs a kernel to its end, or until `keep_on`, called every 4096 windows, returns `false`.
    ///
    /// # Errors
    /// [`Error`] if a block does not fit an SM, the kernel's source fails, or its warps deadlock.
    ///
    /// # Panics
    /// If the system cannot start a thread.
    pub fn run(
        &mut self,
        kernel: &mut dyn Kernel,
        keep_on: &mut dyn FnMut(&Self) -> bool,
    ) -> Result<(), Error> {
        let launch = kernel.launch().clone();
        let (start, counters) = (self.now, self.counters());
        let per_sm = self.crew.params.blocks_per_sm(&self.config.gpu, &launch)?;
        let dispatcher = mem::replace(&mut self.dispatcher, BandwidthServer::new());
        let dispatch = Dispatch { kernel, next_block: 0, blocks: launch.blocks(), dispatcher };
        let dispatch = Mutex::new(dispatch);
        self.launch_first(per_sm, &launch, &dispatch)?;
        let crew = Arc::clone(&self.crew);
        thread::scope(|scope| {
            let (crew, launch, dispatch) = (&*crew, &launch, &dispatch);
            (1..crew.threads())
                .for_each(|thread| drop(scope.spawn(move || crew.work(thread, launch, dispatch))));
            let _lead = crew.lead();
            self.windows(launch, dispatch, keep_on)
        })?;
        let dispatch = dispatch.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.dispatcher = dispatch.dispatcher;
        let mut shares = self.crew.shares();
        let sms = || shares.iter().flat_map(|share| &share.sms);
        let end = sms().map(|sm| sm.last).max().unwrap_or(start).max(start);
        shares.iter_mut().flat_map(|share| &mut share.sms).for_each(Sm::end_kernel);
        drop(shares);
        self.now = end;
        let after = self.counters();
        self.by_kernel.add(&launch.name, end - start, &counters, &after);
        self.kernels.push(KernelReport {
            name: launch.name.clone(),
            start,
            cycles: end - start,
            instructions: after.instructions() - counters.instructions(),
            unknown_opcodes: dispatch.kernel.unknown(),
        });
        Ok(())
    }

    /// Launches the first blocks: one on each SM in turn, up to `per_sm` on each.
    fn launch_first(
        &self,
        per_sm: u32,
        launch: &Launch,
        dispatch: &Mutex<Dispatch<'_>>,
    ) -> Result<(), Error> {
        let crew = &*self.crew;
        let mut shares = crew.shares();
        let (threads, sms) = (shares.len(), self.config.gpu.core.sms as usize);
        for sm in (0..per_sm).flat_map(|_| 0..sms) {
            let Share { sms, outbox, .. } = &mut *shares[sm % threads];
            let (params, turns) = (&crew.params, &crew.turns);
            let floor = self.now * TICKS;
            let mut out = SmContext { params, launch, dispatch, turns, floor, outbox, end: self.now };
            sms[sm / threads].launch(self.now + params.launch, &mut out)?;
        }
        Ok(())
    }

    /// Runs windows until no SM has work, or `keep_on` returns `false`.
    fn windows(
        &mut self,
        launch: &Launch,
        dispatch: &Mutex<Dispatch<'_>>,
        keep_on: &mut dyn FnMut(&Self) -> bool,
    ) -> Result<(), Error> {
        let mut windows = 0u64;
        loop {
            let shares = self.crew.shares();
            if shares.iter().all(|share| share.is_idle()) {
                return Ok(());
            }
            let next = shares.iter().map(|share| share.next()).min().unwrap_or(NEVER);
            drop(shares);
            if next == NEVER {
                return Err(Error::Deadlock { kernel: launch.name.clone(), cycle: self.now });
            }
            self.window(self.now.max(next), launch, dispatch)?;
            windows += 1;
            if windows.is_multiple_of(4096) && !keep_on(self) {
                return Ok(());
            }
        }
    }

    /// Runs one window from cycle `start`: the SMs, then L2.
    fn window(&mut self, start: u64, launch: &Launch, dispatch: &Mutex<Dispatch<'_>>) -> Result<(), Error> {
        let interconnect = self.crew.params.interconnect;
        let end = start + interconnect;
        self.crew.all(Task::Issue { start, end, floor: self.now * TICKS }, launch, dispatch);
        self.collect()?;
        let (floor, cycles) = (end * TICKS, end..end + interconnect);
        self.crew.sort(self.requests.arriving(cycles.clone()), |at, line| self.tlb.wait(at, line));
        self.requests.clear(cycles);
        self.crew.all(Task::Serve { floor }, launch, dispatch);
        self.crew.all(Task::Reply { floor }, launch, dispatch);
        self.crew.clear_arrivals();
        self.now = end;
        if self.timeline.as_ref().is_some_and(|timeline| timeline.is_due(end)) {
            let sample = self.sample();
            self.timeline.iter_mut().for_each(|timeline| timeline.push(sample));
        }
        Ok(())
    }

    /// Collects the requests of a window, in the order of SMs.
    fn collect(&mut self) -> Result<(), Error> {
        let mut shares = self.crew.shares();
        let errors = shares.iter_mut().filter_map(|share| share.error.take());
        if let Some((_, error)) = errors.min_by_key(|(sm, _)| *sm) {
            return Err(error);
        }
        // One thread's requests are in order.
        if let [share] = shares.as_mut_slice() {
            share.outbox.drain(..).for_each(|(cycle, request)| self.requests.push(cycle, request));
            return Ok(());
        }
        let mut from: Vec<_> = shares.iter_mut().map(|share| share.outbox.drain(..).peekable()).collect();
        let threads = from.len();
        for sm in 0..self.config.gpu.core.sms {
            let outbox = &mut from[sm as usize % threads];
            while let Some((cycle, request)) = outbox.next_if(|(_, request)| u32::from(request.sm) == sm) {
                self.requests.push(cycle, request);
            }
        }
        Ok(())
    }

    /// Returns the warp instructions issued so far.
    pub fn instructions(&self) -> u64 {
        self.counts().instructions
    }

    /// Returns the base and length of each allocation that no access has reached. If that is every
    /// allocation of a targets file, the file belongs to another program.
    pub fn untouched(&self) -> Vec<(u64, u64)> {
        let groups = self.crew.groups();
        let mut untouched = groups[0].l2.memory.map.untouched();
        for group in &groups[1..] {
            let also = group.l2.memory.map.untouched();
            untouched.retain(|range| also.contains(range));
        }
        untouched
    }

    /// Returns the core cycles since the start, over all kernels and timed copies.
    pub fn cycle(&self) -> u64 {
        self.now
    }

    fn sample(&self) -> Sample {
        let (sm, totals) = (self.counts(), self.totals());
        Sample {
            cycle: self.now,
            instructions: sm.instructions,
            l1_hits: sm.l1_hits,
            l1_loads: sm.l1_loads,
            l2_hits: totals.l2.read_hits,
            l2_reads: totals.l2.reads,
            dram_bytes: (totals.dram.read_sectors + totals.dram.written_sectors) * 32,
            link_read_bytes: totals.link.read_bytes,
            link_written_bytes: totals.link.written_bytes,
            metadata_misses: totals.memory.metadata_misses,
            faults: totals.um.faults,
        }
    }

    /// Returns the time and traffic so far.
    pub fn report(&self) -> Report {
        let kernels: u64 = self.kernels.iter().map(|kernel| kernel.cycles).sum();
        let between = (self.copy_cycles, self.change_cycles);
        let cycles = kernels + between.0 + between.1;
        let (counts, totals, kernels) = (self.counts(), self.totals(), self.kernels.clone());
        let dirty_sectors = self.crew.groups().iter().map(|group| group.l2.dirty_sectors()).sum();
        let sums = (&counts, &totals, dirty_sectors);
        Report::new(&self.config, cycles, between, sums, kernels, &self.by_kernel)
    }

    /// Returns the sums of all SMs' counts.
    fn counts(&self) -> SmCounts {
        let (shares, mut counts) = (self.crew.shares(), SmCounts::default());
        shares.iter().flat_map(|share| &share.sms).for_each(|sm| counts.add(&sm.counts));
        counts
    }

    /// Returns the sums of all groups' counts.
    fn totals(&self) -> Totals {
        let (groups, mut totals) = (self.crew.groups(), Totals::default());
        groups.iter().for_each(|group| totals.add(&group.l2));
        totals
    }

    fn counters(&self) -> Counters {
        Counters::new(&self.counts(), &self.totals())
    }

    /// Returns the counters over time if `Config::sample_cycles` is set.
    pub fn timeline(&self) -> Option<&Timeline> {
        self.timeline.as_ref()
    }
}
