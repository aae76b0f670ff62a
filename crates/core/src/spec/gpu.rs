//! The fields of a GPU's and a link's file.

use serde::{Deserialize, Serialize};

/// A GPU, as `specs/NAME.toml` describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// Its name in records, and for a built-in file the one it is asked for by.
    pub name: String,
    /// The multiprocessors, and the clock of a simulation.
    pub core: Core,
    /// Cycles from an instruction's issue to that of one that needs its result.
    pub latency: Arithmetic,
    /// Cycles for which an instruction occupies its unit of one scheduler.
    pub interval: Arithmetic,
    /// Shared memory and barriers of an SM.
    pub shared: Shared,
    /// The private cache of each SM.
    pub l1: L1,
    /// The cache that all SMs share, in slices.
    pub l2: L2,
    /// Between the multiprocessors and the slices of L2.
    pub interconnect: Interconnect,
    /// Device memory: channels, banks and their timings.
    pub dram: Dram,
    /// What Buddy Compression adds.
    pub buddy: Buddy,
    /// What Unified Memory adds.
    pub um: Um,
    /// What the model of training takes beside the rest; none for a GPU without published throughputs. A record of a
    /// simulation does not have it, because no simulation depends on it.
    #[serde(default, skip_serializing)]
    pub training: Option<Training>,
}

/// The multiprocessors (SMs) and what each can hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Core {
    /// SMs of the GPU.
    pub sms: u32,
    /// Clock of the SMs in a simulation; every other time is turned into its cycles.
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

/// Shared memory of an SM, and its barriers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shared {
    /// Bytes that the blocks of one SM share out among themselves.
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
    /// Bytes of the cache of one SM.
    pub bytes: u32,
    /// Lines of 128 bytes in a set.
    pub ways: u32,
    /// Cycles from a load's issue to its data on a hit.
    pub latency_cycles: u32,
    /// Lines that may be missing at once.
    pub misses: u32,
    /// Lines of stores that may be on their way at once.
    pub stores: u32,
    /// Cycles of work that may wait before the unit; then memory instructions are not issued.
    pub queue_cycles: u32,
}

/// The cache that all SMs share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct L2 {
    /// Bytes of all slices together.
    pub bytes: u64,
    /// Slices that the addresses are spread over, a multiple of the channels.
    pub slices: u32,
    /// Lines of 128 bytes in a set.
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
    /// Cycles from an SM to a slice, and as many back.
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
    /// Bytes of device memory, the driver's share included.
    pub capacity_bytes: u64,
    /// Channels, each with its own bus and banks.
    pub channels: u32,
    /// Clock that the timings below count in.
    pub clock_mhz: f64,
    /// Bytes that a channel moves in a clock.
    pub bytes_per_clock: f64,
    /// Banks of a channel, each with one open row.
    pub banks: u32,
    /// Bytes of a row of a bank.
    pub row_bytes: u32,
    /// Clocks from activate to read or write (tRCD).
    pub t_rcd: u32,
    /// Clocks from read to data (tCL).
    pub t_cl: u32,
    /// Clocks of a precharge (tRP).
    pub t_rp: u32,
    /// Clocks from activate to activate of the same bank (tRC).
    pub t_rc: u32,
    /// Clocks from activate to activate of another bank (tRRD).
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
    /// Lines in a set of the metadata cache.
    pub metadata_ways: u32,
    /// Clocks of the memory to compress or to decompress an entry.
    pub codec_clocks: u32,
}

/// How the driver of Unified Memory migrates.
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

/// What the model of training takes that a simulation does not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Training {
    /// Clock of the SMs in MHz on the card, and under the load, that the published throughputs are of.
    pub clock_mhz: f64,
    /// Bytes of device memory that a program may use: less than the capacity by what the driver keeps.
    pub usable_bytes: u64,
}

/// A link to buddy or host memory: `specs/link-NAME.toml`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Its name in records, and for a built-in file the one it is asked for by.
    pub name: String,
    /// GB/s in each direction, both at once.
    pub gb_per_s: f64,
    /// Nanoseconds from a request at L2 to the first data, without a queue.
    pub latency_ns: f64,
}

impl Gpu {
    /// Bytes that device memory moves in a cycle of the core, at its peak.
    pub fn dram_bytes_per_cycle(&self) -> f64 {
        f64::from(self.dram.channels) * self.dram.bytes_per_clock * self.dram.clock_mhz / self.core.clock_mhz
    }

    /// GB/s that device memory moves at its peak.
    pub fn dram_gb_per_s(&self) -> f64 {
        f64::from(self.dram.channels) * self.dram.clock_mhz * self.dram.bytes_per_clock / 1000.0
    }
}
