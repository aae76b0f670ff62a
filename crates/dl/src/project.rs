//! What a compressed memory is worth in training: a larger batch, and so a better used GPU.

use buddy_core::RecordKind;
use serde::{Deserialize, Serialize};

use crate::{Footprint, Network, Spec, Time, largest_batch, time};

/// The compression ratio of a network in the paper, where its text states it.
pub fn paper_ratio(network: &str) -> Option<f64> {
    match network {
        "squeezenet" => Some(1.49),
        "resnet50" => Some(1.64),
        _ => None,
    }
}

/// The paper's average over its six networks.
pub const PAPER_MEAN_RATIO: f64 = 1.5;

/// A network on a GPU with and without compression.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Projection {
    /// Name of the network.
    pub network: String,
    /// Name of the GPU in `specs/`.
    pub gpu: String,
    /// The compression ratio of all its allocations together.
    pub ratio: f64,
    /// The largest batch that fits without compression and with it.
    pub largest: [u64; 2],
    /// The batch of highest throughput among those that fit.
    pub best: [u64; 2],
    /// Images or words a second at those.
    pub throughput: [f64; 2],
    /// How many times faster training is with compression, its own overhead left out.
    pub speedup: f64,
}

/// A network at every batch size that was asked for.
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

/// Memory and time of a network at these batch sizes.
pub fn sweep(spec: &Spec, network: &Network, batches: &[u64]) -> Sweep {
    Sweep {
        network: network.name.to_owned(),
        gpu: spec.gpu.name.clone(),
        footprints: batches.iter().map(|&batch| network.footprint(batch)).collect(),
        times: batches.iter().map(|&batch| time(spec, network, batch)).collect(),
    }
}

/// The batch sizes that fit the GPU with and without compression, and what they are worth. `None` if not even one
/// sample fits without it.
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

/// The batch of highest throughput up to `most`, and that throughput. People use round batch sizes, so beside
/// `most` only multiples of 8 are tried, or all below 16.
fn best_batch(spec: &Spec, network: &Network, most: u64) -> Option<(u64, f64)> {
    let candidates = (1..=most).filter(|&batch| batch < 16 || batch % 8 == 0 || batch == most);
    let throughputs = candidates.map(|batch| (batch, time(spec, network, batch).throughput));
    throughputs.max_by(|a, b| a.1.total_cmp(&b.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_never_hurts_and_helps_a_small_memory_more() {
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
