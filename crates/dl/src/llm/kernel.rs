//! A kernel as bytes and operations, and its time on a GPU.

use buddy_record::spec::Gpu;
use serde::{Deserialize, Serialize};

use crate::Error;

/// Peak rates of a GPU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Machine {
    /// Name in records.
    pub name: String,
    /// Peak bytes of device memory in a microsecond.
    pub bytes_per_us: f64,
    /// Cycles of all SMs in a microsecond.
    pub sm_cycles_per_us: f64,
    /// Peak bf16 operations of the tensor cores in a microsecond, or fp16 ones with `fp16_only`.
    pub flops_per_us: f64,
    /// Device memory in bytes.
    pub device_bytes: f64,
    /// True if the fused kernels for packed weights run on it.
    pub fused: bool,
    /// True if its tensor cores multiply fp16 and not bf16.
    pub fp16_only: bool,
}

impl Machine {
    /// Returns the names of the built-in GPUs with a `[tensor]` table.
    pub fn names() -> Vec<&'static str> {
        let has_table = |name: &&str| Gpu::named(name).is_ok_and(|gpu| gpu.tensor.is_some());
        Gpu::names().filter(has_table).collect()
    }

    /// Returns the peak rates of a GPU.
    ///
    /// # Errors
    /// [`Error::NoTensor`] if its spec has no `[tensor]` table.
    pub fn new(gpu: &Gpu) -> Result<Self, Error> {
        let tensor = gpu.tensor.as_ref().ok_or_else(|| Error::NoTensor(gpu.name.clone()))?;
        let sm_cycles_per_us = f64::from(gpu.core.sms) * gpu.core.clock_mhz;
        Ok(Self {
            name: gpu.name.clone(),
            bytes_per_us: 1e3 * gpu.dram_gb_per_s(),
            sm_cycles_per_us,
            flops_per_us: f64::from(tensor.bf16_flops_per_cycle) * sm_cycles_per_us,
            device_bytes: gpu.dram.capacity_bytes as f64,
            fused: tensor.fused_kernels,
            fp16_only: tensor.fp16_only,
        })
    }
}

/// Cost of one kind of kernel: the constants between peak rates and time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Microseconds of launch, ramp and drain that nothing overlaps.
    pub launch_us: f64,
    /// Share of the peak memory bandwidth that it reaches.
    pub memory_share: f64,
    /// Share of the peak tensor rate that it reaches.
    pub tensor_share: f64,
    /// Exponent of the norm that joins memory and tensor time: 1 adds them, larger values approach
    /// the larger of the two.
    pub overlap: f64,
}

/// The largest part of a kernel's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limiter {
    /// Bytes of device memory.
    Memory,
    /// Bytes over the link to buddy memory.
    Link,
    /// Operations of the tensor cores.
    Tensor,
    /// Launch, ramp and drain.
    Launch,
    /// Work of the CPU between steps.
    Host,
}

impl Limiter {
    /// Returns its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Link => "link",
            Self::Tensor => "tensor",
            Self::Launch => "launch",
            Self::Host => "host",
        }
    }
}

/// Kinds of kernels, the rows of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Kind {
    Embedding,
    Norms,
    Qkv,
    RopeAndCache,
    Attention,
    Output,
    GateAndUp,
    Activation,
    Down,
    Router,
    Experts,
    Unpack,
    Head,
    Sampling,
    Host,
}

impl Kind {
    /// Returns its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedding => "embedding",
            Self::Norms => "norms",
            Self::Qkv => "qkv",
            Self::RopeAndCache => "rope and cache",
            Self::Attention => "attention",
            Self::Output => "output",
            Self::GateAndUp => "gate and up",
            Self::Activation => "activation",
            Self::Down => "down",
            Self::Router => "router",
            Self::Experts => "experts",
            Self::Unpack => "unpack weights",
            Self::Head => "head",
            Self::Sampling => "sampling",
            Self::Host => "host",
        }
    }
}

/// Equal launches of one kernel.
#[derive(Debug, Clone, PartialEq)]
pub struct Kernel {
    /// Row of the table that it belongs to.
    pub kind: Kind,
    /// Launches in a step.
    pub launches: f64,
    /// Bytes that a launch moves to and from device memory.
    pub bytes: f64,
    /// Microseconds of a launch in which bytes cross the link to buddy memory, beside those of memory.
    pub link_us: f64,
    /// Operations of a launch on tensor cores.
    pub flops: f64,
    /// Its cost.
    pub cost: Cost,
}

impl Kernel {
    /// Returns the microseconds that memory or link, tensor cores and launch take in one launch.
    fn parts(&self, machine: &Machine) -> [(Limiter, f64); 3] {
        let Cost { launch_us, memory_share, tensor_share, .. } = self.cost;
        let memory = (Limiter::Memory, self.bytes / (memory_share * machine.bytes_per_us));
        [
            if self.link_us > memory.1 { (Limiter::Link, self.link_us) } else { memory },
            (Limiter::Tensor, self.flops / (tensor_share * machine.flops_per_us)),
            (if self.kind == Kind::Host { Limiter::Host } else { Limiter::Launch }, launch_us),
        ]
    }

    /// Returns the microseconds of all launches.
    pub fn us(&self, machine: &Machine) -> f64 {
        let [(_, memory), (_, tensor), (_, launch)] = self.parts(machine);
        let power = self.cost.overlap;
        self.launches * (launch + (memory.powf(power) + tensor.powf(power)).powf(power.recip()))
    }

    /// Returns the largest part of its time.
    pub fn limiter(&self, machine: &Machine) -> Limiter {
        let parts = self.parts(machine);
        parts.into_iter().max_by(|one, other| one.1.total_cmp(&other.1)).expect("three parts").0
    }
}
