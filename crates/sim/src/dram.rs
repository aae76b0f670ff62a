//! Device memory: channels with banks, rows and turnarounds, at the least detail that tells streams from
//! scattered sectors.
//!
//! A request finds its bank's row open, or waits for the bank and for the channel's next activation. Its data
//! then takes the first room on the channel's bus. A bank remembers its last few rows: a request for one that
//! is still being served joins it, as a controller does that serves open rows first. Writes are collected and
//! drained together, so that the bus turns rarely. Refresh stretches every transfer by its share of the time.

use crate::{
    cache::{hash_set, hash_slice},
    pipe::{BandwidthServer, TICKS},
    spec::Gpu,
};

/// Rows that a bank remembers.
const ROWS: usize = 4;

#[derive(Debug, Clone)]
struct Bank {
    rows: [u64; ROWS],
    /// When the first data of each row can be on the bus.
    open: [u64; ROWS],
    /// When each row was closed for the next.
    closed: [u64; ROWS],
    latest: usize,
    /// When the bank can be activated again.
    free: u64,
}

#[derive(Debug)]
struct Channel {
    bus: BandwidthServer,
    activations: BandwidthServer,
    banks: Vec<Bank>,
    /// Writes that wait for the bus to turn: their rows and sectors.
    writes: Vec<(u64, u32)>,
    waiting: u32,
    /// When the last of those before them is done.
    drained: u64,
}

/// What device memory did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) read_sectors: u64,
    pub(crate) written_sectors: u64,
    pub(crate) activations: u64,
    pub(crate) turnarounds: u64,
    /// Ticks that requests waited for banks and buses, beyond an idle memory's latency.
    pub(crate) wait_ticks: u64,
}

/// The timing parameters of a channel, in ticks of the core clock ([`TICKS`] to a cycle).
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
        let bank = Bank { rows: [u64::MAX; ROWS], open: [0; ROWS], closed: [0; ROWS], latest: 0, free: 0 };
        let channel = || Channel {
            bus: BandwidthServer::new(),
            activations: BandwidthServer::new(),
            banks: vec![bank.clone(); spec.banks as usize],
            writes: Vec::new(),
            waiting: 0,
            drained: 0,
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

    /// The channel of a line, and its row there. The lines of a row are neighbours in the address space.
    #[inline]
    fn place(&self, line: u64) -> (usize, u64) {
        (
            (hash_slice(line >> self.interleave, self.slices) / self.slices_per_channel) as usize,
            line / self.row_lines,
        )
    }

    /// Reads sectors of one line; gives the tick at which L2 has them.
    #[inline]
    pub(crate) fn read(&mut self, floor: u64, at: u64, line: u64, sectors: u32) -> u64 {
        let (channel, row) = self.place(line);
        self.traffic.read_sectors += u64::from(sectors);
        let cost = u64::from(sectors) * self.timing.sector;
        let (data, opened) = self.channels[channel].access(&self.timing, floor, at, row, cost);
        self.traffic.activations += u64::from(opened);
        let idle = at + self.timing.cl + cost + if opened { self.timing.rcd } else { 0 };
        self.traffic.wait_ticks += data.saturating_sub(idle);
        data + self.timing.controller
    }

    /// Writes sectors of one line, some time after `at`; gives the tick at which the writes before it are done.
    #[inline]
    pub(crate) fn write(&mut self, floor: u64, at: u64, line: u64, sectors: u32) -> u64 {
        let (index, row) = self.place(line);
        self.traffic.written_sectors += u64::from(sectors);
        let channel = &mut self.channels[index];
        channel.writes.push((row, sectors));
        channel.waiting += sectors;
        if channel.waiting >= self.write_batch {
            let opened = channel.drain(&self.timing, floor, at);
            self.traffic.activations += opened;
            self.traffic.turnarounds += 1;
        }
        self.channels[index].drained
    }

    /// Ticks that the buses were busy, all channels together.
    pub(crate) fn busy(&self) -> u64 {
        self.channels.iter().map(|channel| channel.bus.busy).sum()
    }
}

impl Channel {
    /// Serves one access; gives the tick of its last data and whether a row had to be opened.
    #[inline]
    fn access(&mut self, t: &Timing, floor: u64, at: u64, row: u64, cost: u64) -> (u64, bool) {
        let count = self.banks.len() as u32;
        let bank = &mut self.banks[hash_set(row, count) as usize];
        // A row may stand there twice, opened, closed and opened again: any time that is not over will do.
        let open =
            |index: usize| bank.rows[index] == row && (index == bank.latest || bank.closed[index] > at);
        let joined = (0..ROWS).find(|&index| open(index));
        let (first, opened) = match joined {
            Some(index) => (bank.open[index].max(at + t.cl), false),
            None => (bank.activate(&mut self.activations, t, floor, at, row), true),
        };
        let data = self.bus.send(floor, first, cost);
        // The next row waits for this one's last read to have left the bank.
        if bank.rows[bank.latest] == row {
            bank.free = bank.free.max(data.saturating_sub(t.cl) + t.rp);
        }
        (data, opened)
    }

    /// Writes what has been collected, row by row; gives how many rows had to be opened.
    fn drain(&mut self, t: &Timing, floor: u64, at: u64) -> u64 {
        let mut rows = std::mem::take(&mut self.writes);
        rows.sort_unstable();
        let mut opened = 0;
        for same in rows.chunk_by(|a, b| a.0 == b.0) {
            let sectors: u32 = same.iter().map(|(_, sectors)| sectors).sum();
            let (data, new) = self.access(t, floor, at, same[0].0, u64::from(sectors) * t.sector);
            opened += u64::from(new);
            self.drained = self.drained.max(data);
        }
        self.bus.send(floor, at, t.turnaround);
        rows.clear();
        (self.writes, self.waiting) = (rows, 0);
        opened
    }
}

impl Bank {
    /// Opens a row; gives the tick at which its data can be on the bus.
    #[inline]
    fn activate(
        &mut self,
        activations: &mut BandwidthServer,
        t: &Timing,
        floor: u64,
        at: u64,
        row: u64,
    ) -> u64 {
        let start = activations.send(floor, at.max(self.free), t.rrd).saturating_sub(t.rrd);
        self.closed[self.latest] = start;
        self.latest = (self.latest + 1) % ROWS;
        (self.rows[self.latest], self.open[self.latest]) = (row, start + t.rcd + t.cl);
        self.free = start + t.rc;
        start + t.rcd + t.cl
    }
}
