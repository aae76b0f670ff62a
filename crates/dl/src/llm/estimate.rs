//! Estimate of a step: time by kind of kernel, tokens per second and memory.

use buddy_record::RecordKind;
use serde::{Deserialize, Serialize};

use super::{Ask, BuddyMemory, Kernel, Kind, Limiter, Machine, ModelShape, Parameters, Weights, kernels};

/// A step on a GPU with plain and with packed weights.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The GPU's name.
    pub gpu: String,
    /// The model.
    pub shape: ModelShape,
    /// The step.
    pub ask: Ask,
    /// With plain weights.
    pub plain: Side,
    /// With packed weights.
    pub packed: Side,
    /// With plain weights in a Buddy memory in hardware, if asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buddy: Option<BuddySide>,
}

/// A step with weights in a Buddy memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BuddySide {
    /// The memory.
    pub memory: BuddyMemory,
    /// The step.
    pub side: Side,
}

impl RecordKind for Estimate {
    const KIND: &'static str = "llm-step";
    const VERSION: u32 = 1;
}

/// A step with weights of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// Storage and multiplication of the weights.
    pub weights: Weights,
    /// Kernels by kind, the longest first.
    pub rows: Vec<Row>,
    /// Microseconds of the step.
    pub us: f64,
    /// Tokens that the step reads or writes, per second.
    pub tokens_per_s: f64,
    /// Bytes of all weights in device memory.
    pub weight_bytes: f64,
    /// Bytes of the KV cache of all sequences.
    pub kv_bytes: f64,
    /// True if weights and KV cache fit the device.
    pub fits: bool,
    /// Sequences of this length whose KV cache fits beside the weights.
    pub most_sequences: u64,
}

/// All kernels of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Kind of kernel.
    pub kernel: Kind,
    /// Launches in the step.
    pub launches: u64,
    /// Microseconds of all launches.
    pub us: f64,
    /// Share of the step.
    pub share: f64,
    /// The largest part of the longest kernel's time.
    pub limiter: Limiter,
    /// Bytes to and from device memory.
    pub bytes: f64,
    /// Operations on tensor cores.
    pub flops: f64,
}

/// Estimates a step with plain and with packed weights. Where the GPU has no fused kernels, packed
/// weights are unpacked before each layer, unless `fused` asks to assume them.
pub fn estimate(machine: &Machine, shape: &ModelShape, ask: &Ask, fused: bool) -> Estimate {
    let packed = if machine.fused || fused { Weights::Fused } else { Weights::Unpacked };
    let side = |weights| Side::new(machine, shape, ask, weights, None);
    Estimate {
        gpu: machine.name.clone(),
        shape: shape.clone(),
        ask: *ask,
        plain: side(Weights::Plain),
        packed: side(packed),
        buddy: None,
    }
}

/// Estimates a step with plain weights in a Buddy memory in hardware.
pub fn estimate_buddy(machine: &Machine, shape: &ModelShape, ask: &Ask, memory: BuddyMemory) -> BuddySide {
    BuddySide { memory, side: Side::new(machine, shape, ask, Weights::Buddy, Some(&memory)) }
}

impl Side {
    fn new(
        machine: &Machine,
        shape: &ModelShape,
        ask: &Ask,
        weights: Weights,
        buddy: Option<&BuddyMemory>,
    ) -> Self {
        let kernels = kernels(shape, ask, weights, buddy, &Parameters::default());
        let us = kernels.iter().map(|kernel| kernel.us(machine)).sum();
        let is_packed = weights.is_packed();
        let weight_bytes = shape.weight_bytes(is_packed);
        let weight_bytes = buddy.map_or(weight_bytes, |memory| memory.device_bytes(weight_bytes));
        let sequence_bytes = shape.kv_bytes(ask.cached(), is_packed && ask.packed_kv);
        let kv_bytes = ask.batch as f64 * sequence_bytes;
        Self {
            weights,
            rows: rows(machine, &kernels, us),
            us,
            tokens_per_s: 1e6 * ask.tokens() as f64 / us,
            weight_bytes,
            kv_bytes,
            fits: weight_bytes + kv_bytes <= machine.device_bytes,
            // A negative number of bytes becomes no sequence.
            most_sequences: ((machine.device_bytes - weight_bytes) / sequence_bytes) as u64,
        }
    }

    /// Returns the row of a kind of kernel.
    pub fn row(&self, kind: Kind) -> Option<&Row> {
        self.rows.iter().find(|row| row.kernel == kind)
    }
}

/// Groups kernels by kind, the longest first.
fn rows(machine: &Machine, kernels: &[Kernel], step_us: f64) -> Vec<Row> {
    let mut kinds: Vec<Kind> = Vec::new();
    for kernel in kernels {
        if !kinds.contains(&kernel.kind) {
            kinds.push(kernel.kind);
        }
    }
    let row = |kind: Kind| {
        let own: Vec<&Kernel> = kernels.iter().filter(|kernel| kernel.kind == kind).collect();
        let sum = |of: &dyn Fn(&Kernel) -> f64| own.iter().map(|kernel| of(kernel)).sum::<f64>();
        let us = sum(&|kernel| kernel.us(machine));
        let longest = own.iter().max_by(|one, other| one.us(machine).total_cmp(&other.us(machine)));
        Row {
            kernel: kind,
            launches: sum(&|kernel| kernel.launches) as u64,
            us,
            share: us / step_us,
            limiter: longest.expect("every kind has a kernel").limiter(machine),
            bytes: sum(&|kernel| kernel.launches * kernel.bytes),
            flops: sum(&|kernel| kernel.launches * kernel.flops),
        }
    };
    let mut rows: Vec<Row> = kinds.into_iter().map(row).collect();
    rows.sort_by(|one, other| other.us.total_cmp(&one.us));
    rows
}
