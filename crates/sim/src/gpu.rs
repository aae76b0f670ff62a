//! The whole GPU, simulated in windows of time: first all SMs run, then L2 serves their requests.
//!
//! A window is as long as the interconnect's latency. A request sent in one window reaches L2 in
//! the next, so serving L2 after all SMs keeps requests in time order. Every server returns the
//! completion time at once, so replies need no events.

use std::cell::Cell;

use buddy_core::SECTOR_BYTES;
use buddy_trace::{Application, Kernel, Step};

use crate::{
    Config, Error,
    bandwidth::{BandwidthServer, TICKS},
    by_kernel::{ByKernel, Counters},
    l2::{L2, Operation},
    params::Params,
    request::{Kind, Request, Requests, count},
    sm::{NEVER, Sm, SmContext},
    stats::{KernelReport, Report, SmCounts},
    timeline::{Sample, Timeline},
    tlb::Tlb,
};

/// A GPU that runs kernels one after another.
#[derive(Debug)]
pub struct Simulator {
    config: Config,
    params: Params,
    sms: Vec<Sm>,
    l2: L2,
    requests: Requests,
    arrived: Vec<Request>,
    now: u64,
    /// Block dispatcher of the whole GPU.
    dispatcher: BandwidthServer,
    tlb: Tlb,
    reply_sector_ticks: u64,
    kernels: Vec<KernelReport>,
    by_kernel: ByKernel,
    copy_cycles: u64,
    change_cycles: u64,
    timeline: Option<Timeline>,
}

impl Simulator {
    /// Creates a GPU at cycle 0 with empty caches.
    pub fn new(config: Config) -> Self {
        let params = Params::new(&config.gpu);
        let reply = f64::from(config.gpu.interconnect.reply_bytes_per_cycle);
        Self {
            sms: (0..config.gpu.core.sms).map(|number| Sm::new(number as u16, &params)).collect(),
            l2: L2::new(&config),
            requests: Requests::new(params.interconnect),
            arrived: Vec::new(),
            now: 0,
            dispatcher: BandwidthServer::new(),
            tlb: Tlb::new(&config.gpu),
            reply_sector_ticks: (32.0 / reply * TICKS as f64).round() as u64,
            kernels: Vec::new(),
            by_kernel: ByKernel::default(),
            copy_cycles: 0,
            change_cycles: 0,
            timeline: config.sample_cycles.map(Timeline::new),
            params,
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
        let cycles = self.l2.memory.link.copy(bytes).div_ceil(TICKS);
        self.copy_cycles += cycles;
        self.now += cycles;
    }

    /// Changes targets between two kernels: reads and writes `bytes` stored bytes once, at the
    /// bandwidth of device memory.
    pub fn change(&mut self, bytes: u64) {
        let cycles = (2.0 * bytes as f64 / self.config.gpu.dram_bytes_per_cycle()).ceil() as u64;
        self.change_cycles += cycles;
        self.now += cycles;
        let traffic = &mut self.l2.memory.dram.traffic;
        let sectors = bytes.div_ceil(SECTOR_BYTES as u64);
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
    pub fn run(
        &mut self,
        kernel: &mut dyn Kernel,
        keep_on: &mut dyn FnMut(&Self) -> bool,
    ) -> Result<(), Error> {
        let launch = kernel.launch().clone();
        let start = self.now;
        let before: u64 = self.instructions();
        let counters = self.counters();
        let mut next_block = 0;
        let per_sm = self.params.blocks_per_sm(&self.config.gpu, &launch)?;
        let sms = self.sms.len();
        for sm in (0..per_sm).flat_map(|_| 0..sms) {
            let (sm, mut out) = self.sm_context(sm, kernel, &launch, &mut next_block);
            sm.launch(start + out.params.launch, &mut out)?;
        }
        let mut windows = 0u64;
        while self.sms.iter().any(|sm| !sm.is_idle()) {
            self.window(kernel, &launch, &mut next_block)?;
            windows += 1;
            if windows.is_multiple_of(4096) && !keep_on(self) {
                break;
            }
        }
        let end = self.sms.iter().map(|sm| sm.last).max().unwrap_or(start).max(start);
        self.sms.iter_mut().for_each(Sm::end_kernel);
        self.now = end;
        let instructions = self.instructions() - before;
        let after = self.counters();
        self.by_kernel.add(&launch.name, end - start, &counters, &after);
        self.kernels.push(KernelReport {
            name: launch.name.clone(),
            start,
            cycles: end - start,
            instructions,
            unknown_opcodes: kernel.unknown(),
        });
        Ok(())
    }

    /// Borrows one SM and the shared state that it runs with.
    fn sm_context<'a>(
        &'a mut self,
        sm: usize,
        kernel: &'a mut dyn Kernel,
        launch: &'a buddy_trace::Launch,
        next_block: &'a mut u64,
    ) -> (&'a mut Sm, SmContext<'a>) {
        let (params, requests, dispatcher) = (&self.params, &mut self.requests, &mut self.dispatcher);
        let (blocks, floor) = (launch.blocks(), self.now * TICKS);
        (
            &mut self.sms[sm],
            SmContext { params, kernel, launch, next_block, blocks, requests, dispatcher, floor },
        )
    }

    /// Runs one window: the SMs, then L2.
    fn window(
        &mut self,
        kernel: &mut dyn Kernel,
        launch: &buddy_trace::Launch,
        next_block: &mut u64,
    ) -> Result<(), Error> {
        let next = self.sms.iter().map(|sm| sm.next).min().unwrap_or(NEVER);
        if next == NEVER {
            return Err(Error::Deadlock { kernel: launch.name.clone(), cycle: self.now });
        }
        let start = self.now.max(next);
        let end = start + self.params.interconnect;
        self.requests.open(end);
        for sm in 0..self.sms.len() {
            if self.sms[sm].next < end {
                let (sm, mut out) = self.sm_context(sm, kernel, launch, next_block);
                sm.run(start, end, &mut out)?;
            }
        }
        let floor = (start + self.params.interconnect) * TICKS;
        for cycle in start + self.params.interconnect..end + self.params.interconnect {
            let mut arrived = std::mem::take(&mut self.arrived);
            self.requests.take(cycle, &mut arrived);
            arrived.iter().for_each(|request| self.arrive(floor, cycle, request));
            arrived.clear();
            self.arrived = arrived;
        }
        self.now = end;
        if self.timeline.as_ref().is_some_and(|timeline| timeline.is_due(end)) {
            let sample = self.sample();
            self.timeline.iter_mut().for_each(|timeline| timeline.push(sample));
        }
        Ok(())
    }

    /// Serves a request that arrives at L2.
    #[inline]
    fn arrive(&mut self, floor: u64, cycle: u64, request: &Request) {
        let Request { line, sectors, full, load_id, l1_line, .. } = *request;
        let sm = &mut self.sms[usize::from(request.sm)];
        let operation = match request.kind {
            Kind::Read => Operation::Read,
            Kind::Write => Operation::Write { full },
            // Atomics carry their passes in the `full` field.
            Kind::Atomic | Kind::Reduce => Operation::Atomic { passes: full },
            Kind::Merge => {
                let done = sm.fill_time(l1_line);
                return sm.complete(load_id, done);
            }
        };
        let translation = self.tlb.wait(cycle * TICKS, line);
        let reply_at =
            translation + self.l2.access(floor, cycle * TICKS, request.sm, line, sectors, operation);
        if matches!(request.kind, Kind::Write | Kind::Reduce) {
            return sm.end_store(reply_at.div_ceil(TICKS));
        }
        let transfer = count(sectors) * self.reply_sector_ticks;
        let done =
            sm.reply.send(floor, reply_at + self.params.interconnect * TICKS, transfer).div_ceil(TICKS);
        sm.fill(l1_line, line, done);
        sm.complete(load_id, done);
    }

    /// Returns the warp instructions issued so far.
    pub fn instructions(&self) -> u64 {
        self.sms.iter().map(|sm| sm.counts.instructions).sum()
    }

    /// Returns the base and length of each allocation that no access has reached. If that is every
    /// allocation of a targets file, the file belongs to another program.
    pub fn untouched(&self) -> Vec<(u64, u64)> {
        self.l2.memory.map.untouched()
    }

    /// Returns the core cycles since the start, over all kernels and timed copies.
    pub fn cycle(&self) -> u64 {
        self.now
    }

    fn sample(&self) -> Sample {
        let mut sample = Sample { cycle: self.now, ..Sample::default() };
        for sm in &self.sms {
            sample.instructions += sm.counts.instructions;
            sample.l1_hits += sm.counts.l1_hits;
            sample.l1_loads += sm.counts.l1_loads;
        }
        let (l2, memory) = (&self.l2.counts, &self.l2.memory);
        (sample.l2_hits, sample.l2_reads) = (l2.read_hits, l2.reads);
        sample.dram_bytes = (memory.dram.traffic.read_sectors + memory.dram.traffic.written_sectors) * 32;
        (sample.link_read_bytes, sample.link_written_bytes) =
            (memory.link.read_bytes, memory.link.written_bytes);
        (sample.metadata_misses, sample.faults) = (memory.counts.metadata_misses, memory.um.counts.faults);
        sample
    }

    /// Returns the time and traffic so far.
    pub fn report(&self) -> Report {
        let kernels: u64 = self.kernels.iter().map(|kernel| kernel.cycles).sum();
        let between = (self.copy_cycles, self.change_cycles);
        let cycles = kernels + between.0 + between.1;
        let (counts, kernels) = (self.counts(), self.kernels.clone());
        Report::new(&self.config, cycles, between, &counts, &self.l2, kernels, &self.by_kernel)
    }

    /// Returns the sums of all SMs' counts.
    fn counts(&self) -> SmCounts {
        let mut counts = SmCounts::default();
        self.sms.iter().for_each(|sm| counts.add(&sm.counts));
        counts
    }

    fn counters(&self) -> Counters {
        Counters::new(&self.counts(), &self.l2)
    }

    /// Returns the counters over time if `Config::sample_cycles` is set.
    pub fn timeline(&self) -> Option<&Timeline> {
        self.timeline.as_ref()
    }
}
