//! The paper's six networks, a file each.

mod alexnet;
pub(crate) mod biglstm;
mod inception_v2;
mod resnet50;
mod squeezenet;
mod vgg16;

use crate::{Error, Layer};

/// A network, layer by layer.
#[derive(Debug, Clone)]
pub struct Network {
    /// Its name, such as `resnet50`.
    pub name: &'static str,
    /// Its name as people write it.
    pub title: &'static str,
    /// What throughput counts: `images` or `words`.
    pub unit: &'static str,
    /// Its layers; the first is the input, and each reads only layers before it.
    pub layers: Vec<Layer>,
}

impl Network {
    /// Names of the networks, in the order of the paper's table.
    pub const ALL: [&'static str; 6] =
        ["biglstm", "alexnet", "inception_v2", "squeezenet", "vgg16", "resnet50"];

    /// A network by its name.
    ///
    /// # Errors
    /// [`Error::Network`] if there is none of that name.
    pub fn named(name: &str) -> Result<Self, Error> {
        let (name, title, unit, layers) = match name {
            "alexnet" => ("alexnet", "AlexNet", "images", alexnet::layers()),
            "biglstm" => ("biglstm", "BigLSTM", "words", biglstm::layers()),
            "inception_v2" => ("inception_v2", "Inception v2", "images", inception_v2::layers()),
            "resnet50" => ("resnet50", "ResNet50", "images", resnet50::layers()),
            "squeezenet" => ("squeezenet", "SqueezeNet v1.1", "images", squeezenet::layers()),
            "vgg16" => ("vgg16", "VGG16", "images", vgg16::layers()),
            _ => return Err(Error::Network(name.to_owned())),
        };
        Ok(Self { name, title, unit, layers })
    }

    /// All six, in the order of [`Network::ALL`].
    pub fn all() -> Vec<Self> {
        Self::ALL.iter().map(|name| Self::named(name).expect("each name has its network")).collect()
    }

    /// How many weights it learns.
    pub fn weights(&self) -> u64 {
        self.layers.iter().map(Layer::weights).sum()
    }

    /// What one sample counts in throughput: one image, or the words of a sequence.
    pub fn units_per_sample(&self) -> u64 {
        if self.unit == "words" { self.layers[0].output.height } else { 1 }
    }

    /// Multiply-adds of one sample's forward pass, in convolutions and matrix products.
    pub fn multiply_adds(&self) -> u64 {
        self.layers.iter().map(Layer::multiply_adds).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Op;

    #[test]
    fn weights_are_those_of_the_published_networks() {
        let weights = |name| Network::named(name).unwrap().weights();
        assert_eq!(weights("alexnet"), 60_965_224);
        assert_eq!(weights("vgg16"), 138_357_544);
        assert_eq!(weights("resnet50"), 25_557_032);
        assert_eq!(weights("squeezenet"), 1_235_496);
        assert_eq!(weights("inception_v2"), 11_295_240);
        // Two layers of 8192 cells projected to 1024, and a table each for the words in and out.
        let lstm = 2 * (4 * 8192 * (1024 + 1024 + 1) + 8192 * 1024);
        assert_eq!(weights("biglstm"), lstm + 33_278 * 1024 * 2 + 33_278);
    }

    #[test]
    fn multiply_adds_are_those_of_the_literature() {
        for (name, billions) in [
            ("alexnet", 0.72),
            ("vgg16", 15.5),
            ("resnet50", 4.1),
            ("squeezenet", 0.35),
            ("inception_v2", 2.0),
        ] {
            let ours = Network::named(name).unwrap().multiply_adds() as f64 / 1e9;
            assert!((ours / billions - 1.0).abs() < 0.06, "{name}: {ours}");
        }
    }

    #[test]
    fn layers_read_layers_before_them_and_end_in_a_softmax() {
        for network in Network::all() {
            for (number, layer) in network.layers.iter().enumerate() {
                assert!(layer.inputs.iter().all(|&input| input < number), "{}", layer.name);
                assert_eq!(layer.inputs.is_empty(), layer.op == Op::Input);
            }
            assert_eq!(network.layers.last().unwrap().op, Op::Softmax, "{}", network.name);
        }
        assert!(Network::named("lenet").is_err());
    }
}
