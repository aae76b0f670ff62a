//! Device memory of training, by batch size.

use serde::{Deserialize, Serialize};

use crate::{Layer, Network};

/// Bytes per value: single precision, as in the paper.
pub const VALUE_BYTES: u64 = 4;

/// Bytes of driver, libraries and convolution workspace, independent of the network.
///
/// Fitted to the published memory of three networks (`docs/notes/case-study.md`).
pub const WORKSPACE_BYTES: u64 = 300 << 20;

/// Bytes of training at one batch size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Footprint {
    /// Samples of a batch.
    pub batch: u64,
    /// Bytes of the weights.
    pub weights: u64,
    /// Bytes of the weight gradients.
    pub gradients: u64,
    /// Bytes of the momentum.
    pub optimizer: u64,
    /// Bytes of the batch itself.
    pub input: u64,
    /// Bytes of every layer's output and of other saved tensors.
    pub activations: u64,
    /// Bytes of activation gradients. Each lives from the layer that writes it to the layer that
    /// reads it, so the largest pair counts.
    pub activation_gradients: u64,
    /// Bytes of driver, libraries and their workspace.
    pub workspace: u64,
}

impl Footprint {
    /// Returns the bytes independent of the batch.
    pub fn fixed(&self) -> u64 {
        self.weights + self.gradients + self.optimizer + self.workspace
    }

    /// Returns the bytes proportional to the batch.
    pub fn growing(&self) -> u64 {
        self.input + self.activations + self.activation_gradients
    }

    /// Returns the total bytes.
    pub fn total(&self) -> u64 {
        self.fixed() + self.growing()
    }

    /// Returns the device bytes when all but the workspace is compressed by this ratio.
    pub fn compressed(&self, ratio: f64) -> u64 {
        self.workspace + ((self.total() - self.workspace) as f64 / ratio).ceil() as u64
    }
}

impl Network {
    /// Returns the footprint of training at this batch size.
    pub fn footprint(&self, batch: u64) -> Footprint {
        let weights = self.weights() * VALUE_BYTES;
        let (input, layers) = self.layers.split_first().expect("a network has an input");
        let saved = |layer: &Layer| layer.output.elements() + layer.saved();
        let pair = |layer: &Layer| layer.input.elements() + layer.output.elements();
        let bytes = |values: u64| values * batch * VALUE_BYTES;
        Footprint {
            batch,
            weights,
            gradients: weights,
            optimizer: weights,
            input: bytes(input.output.elements()),
            activations: bytes(layers.iter().map(saved).sum()),
            activation_gradients: bytes(layers.iter().map(pair).max().unwrap_or(0)),
            workspace: WORKSPACE_BYTES,
        }
    }

    /// Returns the batch size from which more than half of the memory grows with the batch.
    pub fn transition_batch(&self) -> u64 {
        let one = self.footprint(1);
        one.fixed().div_ceil(one.growing())
    }
}

/// Returns the largest batch that fits a device memory at a compression ratio (1 for none); 0 if
/// none fits.
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
    fn vgg16_footprint_matches_hand_computed_parts() {
        let footprint = network("vgg16").footprint(2);
        assert_eq!(footprint.weights, 138_357_544 * 4);
        assert_eq!(footprint.input, 2 * 3 * 224 * 224 * 4);
        // conv1_1 and its ReLU are the largest pair.
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
    fn alexnet_has_the_largest_transition_batch_as_in_the_paper() {
        let transition = |name| network(name).transition_batch();
        assert!((64..=128).contains(&transition("alexnet")), "the paper says 96: {}", transition("alexnet"));
        for name in ["inception_v2", "squeezenet", "vgg16", "resnet50"] {
            assert!(transition(name) <= 32, "{name}: {}", transition(name));
        }
        assert!(transition("biglstm") < transition("alexnet"));
    }
}
