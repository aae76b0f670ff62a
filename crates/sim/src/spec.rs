//! What a GPU and a link are, as data: `specs/*.toml`, validated once.
//!
//! `docs/model.md` lists every parameter with its value, its source and its effect.

use serde::{Deserialize, Serialize};

use crate::Error;

/// A GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// Its name in records.
    pub name: String,
    /// The multiprocessors.
    pub core: Core,
    /// Cycles from an instruction's issue to that of one that needs its result.
    pub latency: Arithmetic,
    /// Cycles for which an instruction occupies its unit of one scheduler.
    pub interval: Arithmetic,
    /// Shared memory.
    pub shared: Shared,
    /// The private cache.
    pub l1: L1,
    /// The shared cache.
    pub l2: L2,
    /// Between the multiprocessors and the slices of L2.
    pub interconnect: Interconnect,
    /// Device memory.
    pub dram: Dram,
    /// What Buddy Compression adds.
    pub buddy: Buddy,
    /// What Unified Memory adds.
    pub um: Um,
}

/// The multiprocessors (SMs).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Core {
    /// How many there are.
    pub sms: u32,
    /// Their clock; every other time is turned into its cycles.
    pub clock_mhz: f64,
    /// Warp schedulers of an SM.
    pub schedulers: u32,
    /// Instructions that a scheduler issues in a cycle.
    pub issue_width: u32,
    /// Warps that an SM holds.
    pub max_warps: u32,
    /// Thread blocks that an SM holds.
    pub max_blocks: u32,
    /// 32-bit registers of an SM.
    pub registers: u32,
    /// Cycles from the end of a block to the first instruction of the one that takes its place.
    pub block_launch_cycles: u32,
}

/// A figure for each class of arithmetic.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Arithmetic {
    pub int: u32,
    pub fp32: u32,
    pub fp64: u32,
    pub fp16: u32,
    pub sfu: u32,
    pub tensor: u32,
    pub control: u32,
    pub constant: u32,
}

/// Shared memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shared {
    /// Bytes of an SM.
    pub bytes: u32,
    /// Cycles of a load without conflicts.
    pub latency_cycles: u32,
    /// Cycles from the last arrival at a barrier to the next issue.
    pub barrier_cycles: u32,
}

/// The private cache of an SM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct L1 {
    /// Its bytes.
    pub bytes: u32,
    /// Its ways.
    pub ways: u32,
    /// Cycles of a hit.
    pub latency_cycles: u32,
    /// Lines that may be missing at once.
    pub misses: u32,
    /// Lines of stores that may be on their way at once.
    pub stores: u32,
    /// Cycles of work that may wait before the unit; then memory instructions are not issued.
    pub queue_cycles: u32,
}

/// The shared cache.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct L2 {
    /// Its bytes.
    pub bytes: u64,
    /// Its slices.
    pub slices: u32,
    /// Its ways.
    pub ways: u32,
    /// Cycles of a hit, without the interconnect.
    pub latency_cycles: u32,
    /// Sectors that a slice serves in a cycle.
    pub sectors_per_cycle: f64,
    /// Lines that a slice may miss at once.
    pub misses: u32,
    /// Cycles for which an atomic occupies its slice, for each sector.
    pub atomic_cycles: u32,
}

/// The interconnect between SMs and L2.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interconnect {
    /// Cycles of one way.
    pub latency_cycles: u32,
    /// Bytes that an SM sends in a cycle.
    pub request_bytes_per_cycle: u32,
    /// Bytes that an SM receives in a cycle.
    pub reply_bytes_per_cycle: u32,
}

/// Device memory. Times are in clocks of the memory unless they say otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dram {
    /// Bytes that it holds.
    pub capacity_bytes: u64,
    /// Channels.
    pub channels: u32,
    /// Clock.
    pub clock_mhz: f64,
    /// Bytes that a channel moves in a clock.
    pub bytes_per_clock: f64,
    /// Banks of a channel.
    pub banks: u32,
    /// Bytes of a row of a bank.
    pub row_bytes: u32,
    /// Activate to read or write.
    pub t_rcd: u32,
    /// Read to data.
    pub t_cl: u32,
    /// Precharge.
    pub t_rp: u32,
    /// Activate to activate, same bank.
    pub t_rc: u32,
    /// Activate to activate, other bank.
    pub t_rrd: u32,
    /// Bus time lost when reads turn to writes and back.
    pub t_turnaround: u32,
    /// Writes, in sectors, that a channel collects before it turns the bus.
    pub write_batch: u32,
    /// Share of the time that refresh takes.
    pub refresh_share: f64,
    /// Cycles of the core from L2 to the memory's command and from its data back to L2.
    pub controller_cycles: u32,
}

/// What Buddy Compression adds to an L2 slice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Buddy {
    /// Bytes of metadata cache of a slice.
    pub metadata_bytes: u32,
    /// Bytes of one of its lines; a miss fetches a line.
    pub metadata_line_bytes: u32,
    /// Its ways.
    pub metadata_ways: u32,
    /// Clocks of the memory to compress or to decompress an entry.
    pub codec_clocks: u32,
}

/// What the driver of Unified Memory does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Um {
    /// Microseconds to handle a batch of faults.
    pub batch_us: f64,
    /// Faults that a batch takes.
    pub batch_faults: u32,
    /// Bytes that a fault migrates.
    pub block_bytes: u64,
    /// Bytes that are evicted at once, and the neighbourhood that is fetched as a whole once half of it is there.
    pub region_bytes: u64,
}

/// A link to buddy or host memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Its name in records.
    pub name: String,
    /// GB/s in each direction, both at once.
    pub gb_per_s: f64,
    /// Nanoseconds from a request at L2 to the first data, without a queue.
    pub latency_ns: f64,
}

impl Gpu {
    /// Reads and checks a GPU.
    ///
    /// # Errors
    /// [`Error::Spec`] that names the file and the field.
    pub fn parse(file: &str, text: &str) -> Result<Self, Error> {
        let gpu: Self = toml::from_str(text).map_err(|error| Error::toml(file, &error))?;
        gpu.check().map_err(|why| Error::Spec { file: file.to_owned(), why })?;
        Ok(gpu)
    }

    /// Looks at the figures, for a GPU that was changed after it was read.
    ///
    /// # Errors
    /// A text that names the field.
    pub fn check(&self) -> Result<(), String> {
        let Self { core, latency, interval, shared, l1, l2, interconnect, dram, buddy, um, .. } = self;
        within("core.sms", core.sms, 1, 1024)?;
        within("core.clock_mhz", core.clock_mhz, 100.0, 10_000.0)?;
        within("core.schedulers", core.schedulers, 1, 8)?;
        within("core.issue_width", core.issue_width, 1, 4)?;
        within("core.max_warps", core.max_warps, core.schedulers, 64 * core.schedulers)?;
        within("core.max_blocks", core.max_blocks, 1, 128)?;
        within("core.registers", core.registers, 1024, 1 << 20)?;
        within("core.block_launch_cycles", core.block_launch_cycles, 0, 100_000)?;
        latency.check("latency", 1)?;
        interval.check("interval", 1)?;
        within("shared.bytes", shared.bytes, 0, 1 << 20)?;
        within("shared.latency_cycles", shared.latency_cycles, 1, 1000)?;
        within("shared.barrier_cycles", shared.barrier_cycles, 1, 1000)?;
        within("l1.ways", l1.ways, 1, 1024)?;
        within("l1.bytes", l1.bytes, 128 * l1.ways, 1 << 20)?;
        within("l1.latency_cycles", l1.latency_cycles, 1, 1000)?;
        within("l1.misses", l1.misses, 1, 4096)?;
        within("l1.stores", l1.stores, 1, 4096)?;
        within("l1.queue_cycles", l1.queue_cycles, 1, 1000)?;
        within("l2.slices", l2.slices, 1, 512)?;
        within("l2.ways", l2.ways, 1, 64)?;
        let smallest = u64::from(l2.slices) * u64::from(l2.ways) * 128;
        within("l2.bytes", l2.bytes, smallest, 1 << 32)?;
        within("l2.latency_cycles", l2.latency_cycles, 1, 10_000)?;
        within("l2.sectors_per_cycle", l2.sectors_per_cycle, 0.1, 16.0)?;
        within("l2.misses", l2.misses, 1, 65_536)?;
        within("l2.atomic_cycles", l2.atomic_cycles, 1, 1000)?;
        within("interconnect.latency_cycles", interconnect.latency_cycles, 4, 1000)?;
        within("interconnect.request_bytes_per_cycle", interconnect.request_bytes_per_cycle, 1, 1024)?;
        within("interconnect.reply_bytes_per_cycle", interconnect.reply_bytes_per_cycle, 1, 1024)?;
        dram.check(l2.slices)?;
        within("buddy.metadata_line_bytes", buddy.metadata_line_bytes, 32, 4096)?;
        multiple("buddy.metadata_line_bytes", buddy.metadata_line_bytes.into(), 32)?;
        within("buddy.metadata_ways", buddy.metadata_ways, 1, 64)?;
        let line = buddy.metadata_line_bytes * buddy.metadata_ways;
        within("buddy.metadata_bytes", buddy.metadata_bytes, line, 1 << 24)?;
        within("buddy.codec_clocks", buddy.codec_clocks, 0, 10_000)?;
        within("um.batch_us", um.batch_us, 0.0, 10_000.0)?;
        within("um.batch_faults", um.batch_faults, 1, 65_536)?;
        within("um.block_bytes", um.block_bytes, 4096, 1 << 30)?;
        within("um.region_bytes", um.region_bytes, um.block_bytes, 1 << 30)?;
        multiple("um.block_bytes", um.block_bytes, 128)?;
        multiple("um.region_bytes", um.region_bytes, um.block_bytes)
    }

    /// Bytes that device memory moves in a cycle of the core, at its peak.
    pub fn dram_bytes_per_cycle(&self) -> f64 {
        f64::from(self.dram.channels) * self.dram.bytes_per_clock * self.dram.clock_mhz / self.core.clock_mhz
    }

    /// GB/s that device memory moves at its peak.
    pub fn dram_gb_per_s(&self) -> f64 {
        self.dram_bytes_per_cycle() * self.core.clock_mhz / 1000.0
    }
}

impl Dram {
    fn check(&self, slices: u32) -> Result<(), String> {
        within("dram.capacity_bytes", self.capacity_bytes, 1 << 20, 1 << 44)?;
        within("dram.channels", self.channels, 1, slices)?;
        multiple("l2.slices", slices.into(), self.channels.into())?;
        within("dram.clock_mhz", self.clock_mhz, 100.0, 20_000.0)?;
        within("dram.bytes_per_clock", self.bytes_per_clock, 1.0, 1024.0)?;
        within("dram.banks", self.banks, 1, 256)?;
        within("dram.row_bytes", self.row_bytes, 128, 1 << 16)?;
        multiple("dram.row_bytes", self.row_bytes.into(), 128)?;
        for (name, clocks) in [
            ("dram.t_rcd", self.t_rcd),
            ("dram.t_cl", self.t_cl),
            ("dram.t_rp", self.t_rp),
            ("dram.t_rc", self.t_rc),
            ("dram.t_rrd", self.t_rrd),
            ("dram.t_turnaround", self.t_turnaround),
        ] {
            within(name, clocks, 0, 1000)?;
        }
        within("dram.write_batch", self.write_batch, 1, 4096)?;
        within("dram.refresh_share", self.refresh_share, 0.0, 0.5)?;
        within("dram.controller_cycles", self.controller_cycles, 0, 10_000)
    }
}

impl Arithmetic {
    fn check(&self, table: &str, least: u32) -> Result<(), String> {
        for (name, value) in [
            ("int", self.int),
            ("fp32", self.fp32),
            ("fp64", self.fp64),
            ("fp16", self.fp16),
            ("sfu", self.sfu),
            ("tensor", self.tensor),
            ("control", self.control),
            ("constant", self.constant),
        ] {
            within(&format!("{table}.{name}"), value, least, 1000)?;
        }
        Ok(())
    }
}

impl Link {
    /// Reads and checks a link.
    ///
    /// # Errors
    /// [`Error::Spec`] that names the file and the field.
    pub fn parse(file: &str, text: &str) -> Result<Self, Error> {
        let link: Self = toml::from_str(text).map_err(|error| Error::toml(file, &error))?;
        link.check().map_err(|why| Error::Spec { file: file.to_owned(), why })?;
        Ok(link)
    }

    /// Looks at the figures of a link that did not come from a file.
    ///
    /// # Errors
    /// A text that names the field.
    pub fn check(&self) -> Result<(), String> {
        within("gb_per_s", self.gb_per_s, 0.1, 100_000.0)?;
        within("latency_ns", self.latency_ns, 0.0, 1_000_000.0)
    }
}

fn within<T: PartialOrd + Copy + std::fmt::Display>(
    field: &str,
    value: T,
    least: T,
    most: T,
) -> Result<(), String> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(format!("{field} is {value}; it must lie between {least} and {most}"))
    }
}

fn multiple(field: &str, value: u64, unit: u64) -> Result<(), String> {
    if value.is_multiple_of(unit) {
        Ok(())
    } else {
        Err(format!("{field} is {value}; it must be a multiple of {unit}"))
    }
}
