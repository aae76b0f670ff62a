//! Device memory: channels with banks, row buffers and bus turnarounds, in just enough detail to
//! tell streams from scattered sectors.
//!
//! A request hits an open row, or waits for its bank and for the channel's next activation. Its
//! data then takes the first free time on the channel's bus. A bank keeps its last few rows: a
//! request to one that is still in service joins it, as under first-ready scheduling. Writes are
//! queued and drained in batches to save turnarounds. Refresh lengthens every transfer by its share
//! of time.

use crate::{
    bandwidth::{BandwidthServer, TICKS},
    cache::{hash_set, hash_slice},
    spec::Gpu,
};

/// Recently open rows tracked per bank.
const RECENT_ROWS: usize = 4;

#[derive(Debug, Clone)]
struct Bank {
    /// Numbers of the recently open rows, a ring; `latest` is in the row buffer.
    rows: [u64; RECENT_ROWS],
    /// Tick from which each row's data can be on the bus.
    data_from: [u64; RECENT_ROWS],
    /// Tick at which each row was closed.
    closed_at: [u64; RECENT_ROWS],
    latest: usize,
    /// Tick of the bank's next possible activation.
    activate_from: u64,
}

#[derive(Debug)]
struct Channel {
    bus: BandwidthServer,
    activations: BandwidthServer,
    banks: Vec<Bank>,
    /// Write queue: row and sectors of each write.
    write_queue: Vec<(u64, u32)>,
    queued_sectors: u32,
    /// Tick at which the last drained batch completes.
    drained_at: u64,
}

/// Traffic counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) read_sectors: u64,
    pub(crate) written_sectors: u64,
    pub(crate) activations: u64,
    pub(crate) turnarounds: u64,
    /// Ticks that requests waited for banks and buses, beyond the idle latency.
    pub(crate) wait_ticks: u64,
}

/// Timing parameters of a channel in ticks ([`TICKS`] per core cycle).
#[derive(Debug)]
struct Timing {
    rcd: u64,
    cl: u64,
    rp: u64,
    rc: u64,
    rrd: u64,
    turnaround: u64,
    sector: u64,
    controller: u64,
}

#[derive(Debug)]
pub(crate) struct Dram {
    channels: Vec<Channel>,
    timing: Timing,
    slices_per_channel: u32,
    slices: u32,
    interleave: u32,
    row_lines: u64,
    write_batch: u32,
    pub(crate) traffic: Traffic,
}

impl Dram {
    pub(crate) fn new(gpu: &Gpu) -> Self {
        let spec = &gpu.dram;
        let clock = gpu.core.clock_mhz / spec.clock_mhz * TICKS as f64;
        let ticks = |clocks: u32| (f64::from(clocks) * clock).round() as u64;
        let sector = 32.0 / spec.bytes_per_clock * clock / (1.0 - spec.refresh_share);
        let timing = Timing {
            rcd: ticks(spec.t_rcd),
            cl: ticks(spec.t_cl),
            rp: ticks(spec.t_rp),
            rc: ticks(spec.t_rc),
            rrd: ticks(spec.t_rrd),
            turnaround: ticks(spec.t_turnaround),
            sector: sector.round() as u64,
            controller: u64::from(spec.controller_cycles) * TICKS,
        };
        let bank = Bank {
            rows: [u64::MAX; RECENT_ROWS],
            data_from: [0; RECENT_ROWS],
            closed_at: [0; RECENT_ROWS],
            latest: 0,
            activate_from: 0,
        };
        let channel = || Channel {
            bus: BandwidthServer::new(),
            activations: BandwidthServer::new(),
            banks: vec![bank.clone(); spec.banks as usize],
            write_queue: Vec::new(),
            queued_sectors: 0,
            drained_at: 0,
        };
        Self {
            channels: (0..spec.channels).map(|_| channel()).collect(),
            timing,
            slices_per_channel: gpu.l2.slices / spec.channels,
            slices: gpu.l2.slices,
            interleave: (gpu.l2.interleave_bytes / 128).trailing_zeros(),
            row_lines: u64::from(spec.row_bytes) / 128 * u64::from(spec.channels),
            write_batch: spec.write_batch,
            traffic: Traffic::default(),
        }
    }

    /// Returns the channel and row of a line. Lines of a row are adjacent in the address space.
    #[inline]
    fn locate(&self, line: u64) -> (usize, u64) {
        (
            (hash_slice(line >> self.interleave, self.slices) / self.slices_per_channel) as usize,
            line / self.row_lines,
        )
    }

    /// Reads sectors of one line; returns the tick at which L2 receives them.
    #[inline]
    pub(crate) fn read(&mut self, floor: u64, at: u64, line: u64, sectors: u32) -> u64 {
        let (channel, row) = self.locate(line);
        self.traffic.read_sectors += u64::from(sectors);
        let cost = u64::from(sectors) * self.timing.sector;
        let (data, activated) = self.channels[channel].access(&self.timing, floor, at, row, cost);
        self.traffic.activations += u64::from(activated);
        let idle = at + self.timing.cl + cost + if activated { self.timing.rcd } else { 0 };
        self.traffic.wait_ticks += data.saturating_sub(idle);
        data + self.timing.controller
    }

    /// Queues a write of sectors of one line; returns the tick at which the last drained batch
    /// completes.
    #[inline]
    pub(crate) fn write(&mut self, floor: u64, at: u64, line: u64, sectors: u32) -> u64 {
        let (index, row) = self.locate(line);
        self.traffic.written_sectors += u64::from(sectors);
        let channel = &mut self.channels[index];
        channel.write_queue.push((row, sectors));
        channel.queued_sectors += sectors;
        if channel.queued_sectors >= self.write_batch {
            let activated = channel.drain(&self.timing, floor, at);
            self.traffic.activations += activated;
            self.traffic.turnarounds += 1;
        }
        self.channels[index].drained_at
    }

    /// Returns the busy ticks of all buses.
    pub(crate) fn busy(&self) -> u64 {
        self.channels.iter().map(|channel| channel.bus.busy).sum()
    }
}

impl Channel {
    /// Serves one access; returns the tick of its last data and whether a row was activated.
    #[inline]
    fn access(&mut self, t: &Timing, floor: u64, at: u64, row: u64, cost: u64) -> (u64, bool) {
        let count = self.banks.len() as u32;
        let bank = &mut self.banks[hash_set(row, count) as usize];
        // A row that was closed and reopened may appear twice; either one still in service will do.
        let is_open =
            |index: usize| bank.rows[index] == row && (index == bank.latest || bank.closed_at[index] > at);
        let row_hit = (0..RECENT_ROWS).find(|&index| is_open(index));
        let (first, activated) = match row_hit {
            Some(index) => (bank.data_from[index].max(at + t.cl), false),
            None => (bank.activate(&mut self.activations, t, floor, at, row), true),
        };
        let data = self.bus.send(floor, first, cost);
        // The next activation waits until this row's last read has left the bank.
        if bank.rows[bank.latest] == row {
            bank.activate_from = bank.activate_from.max(data.saturating_sub(t.cl) + t.rp);
        }
        (data, activated)
    }

    /// Drains the write queue row by row; returns the number of activations.
    fn drain(&mut self, t: &Timing, floor: u64, at: u64) -> u64 {
        let mut rows = std::mem::take(&mut self.write_queue);
        rows.sort_unstable();
        let mut activated = 0;
        for row_writes in rows.chunk_by(|a, b| a.0 == b.0) {
            let sectors: u32 = row_writes.iter().map(|(_, sectors)| sectors).sum();
            let (data, activation) =
                self.access(t, floor, at, row_writes[0].0, u64::from(sectors) * t.sector);
            activated += u64::from(activation);
            self.drained_at = self.drained_at.max(data);
        }
        self.bus.send(floor, at, t.turnaround);
        rows.clear();
        (self.write_queue, self.queued_sectors) = (rows, 0);
        activated
    }
}

impl Bank {
    /// Activates a row; returns the tick from which its data can be on the bus.
    #[inline]
    fn activate(
        &mut self,
        activations: &mut BandwidthServer,
        t: &Timing,
        floor: u64,
        at: u64,
        row: u64,
    ) -> u64 {
        let start = activations.send(floor, at.max(self.activate_from), t.rrd).saturating_sub(t.rrd);
        self.closed_at[self.latest] = start;
        self.latest = (self.latest + 1) % RECENT_ROWS;
        (self.rows[self.latest], self.data_from[self.latest]) = (row, start + t.rcd + t.cl);
        self.activate_from = start + t.rc;
        start + t.rcd + t.cl
    }
}
