//! Counters over time, written for Perfetto or Chrome's trace viewer.

use std::io::{self, Write};

use serde_json::json;

use crate::Report;

/// Cumulative counters at one cycle.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sample {
    pub(crate) cycle: u64,
    pub(crate) instructions: u64,
    pub(crate) l1_loads: u64,
    pub(crate) l1_hits: u64,
    pub(crate) l2_reads: u64,
    pub(crate) l2_hits: u64,
    pub(crate) dram_bytes: u64,
    pub(crate) link_read_bytes: u64,
    pub(crate) link_written_bytes: u64,
    pub(crate) metadata_misses: u64,
    pub(crate) faults: u64,
}

/// Samples at a fixed interval of cycles.
#[derive(Debug, Clone)]
pub struct Timeline {
    interval: u64,
    samples: Vec<Sample>,
}

/// Sample limit; when it is reached, every second sample is dropped and the interval doubles.
const MAX_SAMPLES: usize = 20_000;

impl Timeline {
    pub(crate) fn new(interval: u64) -> Self {
        Self { interval: interval.max(1), samples: Vec::new() }
    }

    pub(crate) fn is_due(&self, cycle: u64) -> bool {
        cycle >= self.samples.last().map_or(0, |sample| sample.cycle) + self.interval
    }

    pub(crate) fn push(&mut self, sample: Sample) {
        self.samples.push(sample);
        if self.samples.len() == MAX_SAMPLES {
            let mut index = 0;
            self.samples.retain(|_| {
                index += 1;
                index % 2 == 0
            });
            self.interval *= 2;
        }
    }

    /// Writes kernels as spans and counters as graphs in Chrome's trace JSON. Times are
    /// microseconds of GPU time.
    ///
    /// # Errors
    /// Any error of `out`.
    pub fn write(&self, report: &Report, out: &mut impl Write) -> io::Result<()> {
        let per_cycle = if report.cycles == 0 { 0.0 } else { report.seconds * 1e6 / report.cycles as f64 };
        let micros = |cycle: u64| cycle as f64 * per_cycle;
        write!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        let name = format!("{} {}", report.gpu, report.mode.name());
        write!(out, "{}", json!({ "name": "process_name", "ph": "M", "pid": 1, "args": { "name": name } }))?;
        for kernel in &report.kernels {
            let (ts, dur) = (micros(kernel.start), micros(kernel.cycles));
            let args = json!({ "cycles": kernel.cycles, "instructions": kernel.instructions });
            let span = json!({ "name": kernel.name, "ph": "X", "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args });
            write!(out, ",\n{span}")?;
        }
        let mut before = Sample::default();
        for sample in &self.samples {
            for (name, value) in sample.rates(&before, per_cycle) {
                let event = json!({
                    "name": name, "ph": "C", "pid": 1, "ts": micros(sample.cycle), "args": { "value": value },
                });
                write!(out, ",\n{event}")?;
            }
            before = *sample;
        }
        writeln!(out, "]}}")
    }
}

impl Sample {
    /// Returns the change since an earlier sample, per cycle, per second or as a ratio.
    fn rates(&self, before: &Self, micros_per_cycle: f64) -> [(&'static str, f64); 8] {
        let cycles = (self.cycle - before.cycle) as f64;
        let ratio = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        let gb_per_s = |bytes: u64| bytes as f64 / (cycles * micros_per_cycle) / 1e3;
        [
            ("IPC", (self.instructions - before.instructions) as f64 / cycles),
            ("L1 hit rate", ratio(self.l1_hits - before.l1_hits, self.l1_loads - before.l1_loads)),
            ("L2 hit rate", ratio(self.l2_hits - before.l2_hits, self.l2_reads - before.l2_reads)),
            ("DRAM GB/s", gb_per_s(self.dram_bytes - before.dram_bytes)),
            ("link read GB/s", gb_per_s(self.link_read_bytes - before.link_read_bytes)),
            ("link write GB/s", gb_per_s(self.link_written_bytes - before.link_written_bytes)),
            ("metadata misses", (self.metadata_misses - before.metadata_misses) as f64),
            ("page faults", (self.faults - before.faults) as f64),
        ]
    }
}
