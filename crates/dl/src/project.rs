//! Projected speedup of compressed memory in training: a larger batch and better utilization.

use buddy_record::RecordKind;
use serde::{Deserialize, Serialize};

use crate::{Footprint, Network, Spec, Time, largest_batch, time};

/// Paper's mean ratio over its six networks.
pub const PAPER_MEAN_RATIO: f64 = 1.5;

/// A network on a GPU with and without compression.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Projection {
    /// Name of the network.
    pub network: String,
    /// Name of the GPU in `specs/`.
    pub gpu: String,
    /// Compression ratio over all its allocations.
    pub ratio: f64,
    /// Largest batch that fits without and with compression.
    pub largest: [u64; 2],
    /// Batch of highest throughput that fits, without and with compression.
    pub best: [u64; 2],
    /// Images or words per second at those.
    pub throughput: [f64; 2],
    /// Speedup by compression, excluding its own overhead.
    pub speedup: f64,
}

/// Memory and time of a network by batch size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// Name of the network.
    pub network: String,
    /// Name of the GPU in `specs/`.
    pub gpu: String,
    /// Memory at each batch size.
    pub footprints: Vec<Footprint>,
    /// Time at each batch size.
    pub times: Vec<Time>,
}

impl RecordKind for Sweep {
    const KIND: &'static str = "training-sweep";
    const VERSION: u32 = 1;
}

impl RecordKind for Projection {
    const KIND: &'static str = "training-projection";
    const VERSION: u32 = 1;
}

/// Returns memory and time of a network at these batch sizes.
pub fn sweep(spec: &Spec, network: &Network, batches: &[u64]) -> Sweep {
    Sweep {
        network: network.name.to_owned(),
        gpu: spec.gpu.name.clone(),
        footprints: batches.iter().map(|&batch| network.footprint(batch)).collect(),
        times: batches.iter().map(|&batch| time(spec, network, batch)).collect(),
    }
}

/// Projects the batch sizes that fit the GPU without and with compression, and their throughput.
/// `None` if not even one sample fits uncompressed.
pub fn project(spec: &Spec, network: &Network, ratio: f64) -> Option<Projection> {
    let largest = [1.0, ratio].map(|ratio| largest_batch(network, spec.gpu.device_bytes, ratio));
    let [plain, compressed] = largest.map(|most| best_batch(spec, network, most));
    let ((plain_batch, plain), (compressed_batch, compressed)) = (plain?, compressed?);
    Some(Projection {
        network: network.name.to_owned(),
        gpu: spec.gpu.name.clone(),
        ratio,
        largest,
        best: [plain_batch, compressed_batch],
        throughput: [plain, compressed],
        speedup: compressed / plain,
    })
}

/// Returns the batch of highest throughput up to `most`, and that throughput. Round batch sizes are
/// usual, so only multiples of 8, those below 16 and `most` itself are tried.
fn best_batch(spec: &Spec, network: &Network, most: u64) -> Option<(u64, f64)> {
    let candidates = (1..=most).filter(|&batch| batch < 16 || batch % 8 == 0 || batch == most);
    let throughputs = candidates.map(|batch| (batch, time(spec, network, batch).throughput));
    throughputs.max_by(|a, b| a.1.total_cmp(&b.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speedup_is_larger_for_smaller_memories_and_one_without_compression() {
        let mut spec = Spec::named("titan-xp").unwrap();
        let vgg16 = Network::named("vgg16").unwrap();
        let large = project(&spec, &vgg16, 1.5).unwrap();
        assert!(large.largest[1] > large.largest[0] && large.speedup >= 1.0);
        spec.gpu.device_bytes = 3 << 30;
        let small = project(&spec, &vgg16, 1.5).unwrap();
        assert!(small.speedup > large.speedup, "{small:?} {large:?}");
        spec.gpu.device_bytes = 1 << 30;
        assert_eq!(project(&spec, &vgg16, 1.5), None);
        assert_eq!(project(&Spec::named("titan-xp").unwrap(), &vgg16, 1.0).unwrap().speedup, 1.0);
    }
}
