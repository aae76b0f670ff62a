//! Fields of GPU and link spec files.

use serde::{Deserialize, Serialize};

/// A GPU, described by `specs/NAME.toml`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// Name in records; for a built-in file also the lookup name.
    pub name: String,
    /// SMs and their clock.
    pub core: Core,
    /// Result latency of each arithmetic class, in cycles.
    pub latency: Arithmetic,
    /// Issue interval of each arithmetic class per scheduler, in cycles.
    pub interval: Arithmetic,
    /// Shared memory and barriers of an SM.
    pub shared: Shared,
    /// Private cache of each SM.
    pub l1: L1,
    /// Cache shared by all SMs, divided into slices.
    pub l2: L2,
    /// Network between SMs and L2 slices.
    pub interconnect: Interconnect,
    /// Address translation.
    pub tlb: Tlb,
    /// Device memory: channels, banks and their timings.
    pub dram: Dram,
    /// Additions of Buddy Compression.
    pub buddy: Buddy,
    /// Unified Memory driver.
    pub um: Um,
    /// Parameters of the training model; `None` for a GPU without published throughputs. Omitted
    /// from simulation records.
    #[serde(default, skip_serializing)]
    pub training: Option<Training>,
    /// Rates of the tensor cores, used only by the model of language models; `None` for a GPU
    /// without bf16 tensor cores. Omitted from simulation records.
    #[serde(default, skip_serializing)]
    pub tensor: Option<Tensor>,
}

/// The SMs and their resources.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Core {
    /// Number of SMs.
    pub sms: u32,
    /// SM clock of a simulation; all other times are converted to its cycles.
    pub clock_mhz: f64,
    /// Warp schedulers per SM.
    pub schedulers: u32,
    /// Instructions issued per scheduler and cycle.
    pub issue_width: u32,
    /// Resident warps per SM.
    pub max_warps: u32,
    /// Resident thread blocks per SM.
    pub max_blocks: u32,
    /// 32-bit registers per SM.
    pub registers: u32,
    /// Cycles from kernel launch to the first instruction of the first block.
    pub launch_cycles: u32,
    /// Minimum cycles between two block launches on the whole GPU.
    pub block_interval: f64,
    /// Cycles from the end of a block to the first instruction of its successor.
    pub block_launch_cycles: u32,
    /// Register-file banks per scheduler, each with one read per cycle; 0 disables bank conflicts.
    pub register_banks: u32,
    /// Cycles from a branch to the instruction after it.
    pub branch_cycles: u32,
    /// Cycles from a comparison to the branch that depends on it.
    pub predicate_cycles: u32,
}

/// One value per class of arithmetic instruction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Arithmetic {
    pub int: u32,
    pub imad: u32,
    pub fp32: u32,
    pub fp64: u32,
    pub fp16: u32,
    pub sfu: u32,
    pub tensor: u32,
    pub control: u32,
    pub constant: u32,
}

/// Shared memory and barriers of an SM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shared {
    /// Shared-memory bytes per SM.
    pub bytes: u32,
    /// Latency of a conflict-free load in cycles.
    pub latency_cycles: u32,
    /// Latency of a conflict-free atomic in cycles.
    pub atomic_cycles: u32,
    /// Latency of a warp shuffle in cycles.
    pub shuffle_cycles: u32,
    /// Cycles from the last arrival at a barrier to the next issue.
    pub barrier_cycles: u32,
    /// Cycles that the arrival of one warp occupies the barrier unit of its SM.
    pub arrival_cycles: u32,
}

/// The private cache of an SM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct L1 {
    /// Bytes per SM.
    pub bytes: u32,
    /// Associativity in 128-byte lines.
    pub ways: u32,
    /// Hit latency in cycles, from issue to data.
    pub latency_cycles: u32,
    /// Outstanding line misses (MSHRs).
    pub misses: u32,
    /// Outstanding store lines.
    pub stores: u32,
    /// Maximum backlog of the memory unit in cycles; beyond it no memory instruction issues.
    pub queue_cycles: u32,
    /// Minimum cycles between two memory instructions of one scheduler.
    pub issue_cycles: u32,
}

/// The L2 cache, shared by all SMs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct L2 {
    /// Bytes of all slices together.
    pub bytes: u64,
    /// Number of slices, a multiple of the DRAM channels.
    pub slices: u32,
    /// Associativity in 128-byte lines.
    pub ways: u32,
    /// Consecutive bytes mapped to one slice, 128 times a power of two.
    pub interleave_bytes: u32,
    /// Partitions, 1 or 2, each serving half of the SMs; each caches lines read from the other.
    pub partitions: u32,
    /// Round-trip cycles to a slice of the other partition.
    pub far_cycles: u32,
    /// Minimum aligned fetch of a read miss, in bytes.
    pub fetch_bytes: u32,
    /// Hit latency in cycles, excluding the interconnect.
    pub latency_cycles: u32,
    /// Sectors read per slice and cycle.
    pub sectors_per_cycle: f64,
    /// Sectors written per slice and cycle.
    pub written_sectors_per_cycle: f64,
    /// Extra cycles that a partial-sector write occupies its slice.
    pub partial_cycles: f64,
    /// Outstanding line misses per slice (MSHRs).
    pub misses: u32,
    /// Cycles that an atomic occupies its slice: per sector, and per further lane on the same word.
    pub atomic_cycles: f64,
}

/// Network between SMs and L2 slices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interconnect {
    /// One-way latency in cycles.
    pub latency_cycles: u32,
    /// Bytes sent per SM and cycle.
    pub request_bytes_per_cycle: u32,
    /// Bytes received per SM and cycle.
    pub reply_bytes_per_cycle: u32,
}

/// Address translation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tlb {
    /// Pages cached.
    pub entries: u32,
    /// Page size in bytes, a power of two.
    pub page_bytes: u64,
    /// Latency of a miss (page walk) in cycles.
    pub walk_cycles: u32,
}

/// Device memory. Times are in memory clocks unless stated otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dram {
    /// Bytes of device memory, including those reserved by the driver.
    pub capacity_bytes: u64,
    /// Channels, each with its own bus and banks.
    pub channels: u32,
    /// Memory clock, the unit of the timings below.
    pub clock_mhz: f64,
    /// Bytes per channel and clock.
    pub bytes_per_clock: f64,
    /// Banks per channel, each with one row buffer.
    pub banks: u32,
    /// Bytes per row.
    pub row_bytes: u32,
    /// Activate to read or write.
    pub t_rcd: u32,
    /// Read to data (CAS latency).
    pub t_cl: u32,
    /// Precharge.
    pub t_rp: u32,
    /// Activate to activate, same bank.
    pub t_rc: u32,
    /// Activate to activate, different banks.
    pub t_rrd: u32,
    /// Bus turnaround between reads and writes, both ways.
    pub t_turnaround: u32,
    /// Queued write sectors per channel that trigger a write burst.
    pub write_batch: u32,
    /// Fraction of time spent in refresh.
    pub refresh_share: f64,
    /// Memory-controller latency, both directions together, in core cycles.
    pub controller_cycles: u32,
}

/// Additions of Buddy Compression to an L2 slice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Buddy {
    /// Metadata-cache bytes per slice.
    pub metadata_bytes: u32,
    /// Metadata line size in bytes; a miss fetches one line.
    pub metadata_line_bytes: u32,
    /// Associativity of the metadata cache.
    pub metadata_ways: u32,
    /// Memory clocks to compress or decompress an entry.
    pub codec_clocks: u32,
}

/// Migration by the Unified Memory driver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Um {
    /// Microseconds to handle one fault batch.
    pub batch_us: f64,
    /// Faults per batch.
    pub batch_faults: u32,
    /// Bytes migrated per fault.
    pub block_bytes: u64,
    /// Eviction granularity in bytes; a region is prefetched as a whole once half of it is
    /// resident.
    pub region_bytes: u64,
}

/// Parameters used only by the training model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Training {
    /// SM clock in MHz of the card and load behind the published throughputs.
    pub clock_mhz: f64,
    /// Device bytes available to a program.
    pub usable_bytes: u64,
}

/// Rates of the tensor cores, used only by the model of language models.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tensor {
    /// Dense bf16 operations with fp32 sums per SM and cycle; a multiply-add is two.
    pub bf16_flops_per_cycle: u32,
    /// True if it has Buddy's fast kernels for packed weights (compute capability 9.0). The portable one
    /// of other GPUs is not modelled.
    #[serde(default)]
    pub fused_kernels: bool,
    /// True if they multiply fp16 and not bf16, before compute capability 8.0; the rate is that of fp16.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fp16_only: bool,
}

/// A link to buddy or host memory: `specs/link-NAME.toml`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Name in records; for a built-in file also the lookup name.
    pub name: String,
    /// Bandwidth per direction in GB/s, full duplex.
    pub gb_per_s: f64,
    /// Unloaded latency from a request at L2 to the first data, in nanoseconds.
    pub latency_ns: f64,
}

impl Gpu {
    /// Returns the peak device-memory bandwidth in bytes per core cycle.
    pub fn dram_bytes_per_cycle(&self) -> f64 {
        f64::from(self.dram.channels) * self.dram.bytes_per_clock * self.dram.clock_mhz / self.core.clock_mhz
    }

    /// Returns the nanoseconds of a load that misses all caches, from issue to data.
    pub fn miss_ns(&self) -> f64 {
        let cycles =
            self.l2.latency_cycles + 2 * self.interconnect.latency_cycles + 1 + self.dram.controller_cycles;
        let clocks = f64::from(self.dram.t_rcd + self.dram.t_cl);
        1000.0 * (f64::from(cycles) / self.core.clock_mhz + clocks / self.dram.clock_mhz)
    }

    /// Returns the peak device-memory bandwidth in GB/s.
    pub fn dram_gb_per_s(&self) -> f64 {
        self.dram_bytes_per_cycle() * self.core.clock_mhz / 1000.0
    }
}
