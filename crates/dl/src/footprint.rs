//! Device memory of training by batch size.

use serde::{Deserialize, Serialize};

use crate::{Layer, Network};

/// Bytes of a value: training is in single precision, as in the paper.
pub const VALUE_BYTES: u64 = 4;

/// What the driver, the libraries and the scratch of convolutions take, whatever the network.
///
/// Fitted to the published memory of three networks (`docs/notes/case-study.md`).
pub const WORKSPACE_BYTES: u64 = 300 << 20;

/// Bytes that training takes at one batch size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Footprint {
    /// Samples of a batch.
    pub batch: u64,
    /// Bytes of what is learnt.
    pub weights: u64,
    /// Bytes of the gradients of what is learnt.
    pub gradients: u64,
    /// The momentum of each weight.
    pub optimizer: u64,
    /// Bytes of the batch itself.
    pub input: u64,
    /// The output of every layer, and what else the backward pass needs.
    pub activations: u64,
    /// Gradients of activations: each lives from the layer that makes it to the layer that reads it, so that the
    /// largest pair counts.
    pub activation_gradients: u64,
    /// The driver, the libraries and their scratch memory, which do not depend on the network.
    pub workspace: u64,
}

impl Footprint {
    /// Bytes that do not depend on the batch.
    pub fn fixed(&self) -> u64 {
        self.weights + self.gradients + self.optimizer + self.workspace
    }

    /// Bytes that grow with the batch.
    pub fn growing(&self) -> u64 {
        self.input + self.activations + self.activation_gradients
    }

    /// Bytes of all of it together.
    pub fn total(&self) -> u64 {
        self.fixed() + self.growing()
    }

    /// Device bytes when all but the workspace is compressed by this ratio.
    pub fn compressed(&self, ratio: f64) -> u64 {
        self.workspace + ((self.total() - self.workspace) as f64 / ratio).ceil() as u64
    }
}

impl Network {
    /// Bytes that training takes at this batch size.
    pub fn footprint(&self, batch: u64) -> Footprint {
        let weights = self.weights() * VALUE_BYTES;
        let (input, layers) = self.layers.split_first().expect("a network has an input");
        let kept = |layer: &Layer| layer.output.elements() + layer.kept();
        let pair = |layer: &Layer| layer.input.elements() + layer.output.elements();
        let bytes = |values: u64| values * batch * VALUE_BYTES;
        Footprint {
            batch,
            weights,
            gradients: weights,
            optimizer: weights,
            input: bytes(input.output.elements()),
            activations: bytes(layers.iter().map(kept).sum()),
            activation_gradients: bytes(layers.iter().map(pair).max().unwrap_or(0)),
            workspace: WORKSPACE_BYTES,
        }
    }

    /// The batch size from which on more than half of the memory grows with the batch.
    pub fn transition_batch(&self) -> u64 {
        let one = self.footprint(1);
        one.fixed().div_ceil(one.growing())
    }
}

/// The largest batch whose training fits a device memory at a compression ratio (1 for none); 0 if none does.
pub fn largest_batch(network: &Network, device_bytes: u64, ratio: f64) -> u64 {
    let one = network.footprint(1);
    let room =
        device_bytes.saturating_sub(one.workspace) as f64 * ratio - (one.fixed() - one.workspace) as f64;
    (room / one.growing() as f64).max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const TITAN_XP: u64 = 12_196 << 20;

    fn network(name: &str) -> Network {
        Network::named(name).unwrap()
    }

    #[test]
    fn parts_of_vgg16() {
        let footprint = network("vgg16").footprint(2);
        assert_eq!(footprint.weights, 138_357_544 * 4);
        assert_eq!(footprint.input, 2 * 3 * 224 * 224 * 4);
        // conv1_1 to its rectifier is the largest pair.
        assert_eq!(footprint.activation_gradients, 2 * 2 * 64 * 224 * 224 * 4);
        assert_eq!(footprint.total() - footprint.fixed(), 2 * network("vgg16").footprint(1).growing());
    }

    #[test]
    fn the_largest_batch_fits_and_one_more_does_not() {
        for network in Network::all() {
            for ratio in [1.0, 1.5, 2.0] {
                let batch = largest_batch(&network, TITAN_XP, ratio);
                assert!(network.footprint(batch).compressed(ratio) <= TITAN_XP, "{}", network.name);
                assert!(network.footprint(batch + 1).compressed(ratio) > TITAN_XP, "{}", network.name);
            }
        }
        assert_eq!(largest_batch(&network("vgg16"), 1 << 30, 1.0), 0);
    }

    #[test]
    fn alexnet_is_the_last_to_grow_as_in_the_paper() {
        let transition = |name| network(name).transition_batch();
        assert!((64..=128).contains(&transition("alexnet")), "the paper says 96: {}", transition("alexnet"));
        for name in ["inception_v2", "squeezenet", "vgg16", "resnet50"] {
            assert!(transition(name) <= 32, "{name}: {}", transition(name));
        }
        assert!(transition("biglstm") < transition("alexnet"));
    }
}
