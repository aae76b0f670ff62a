//! The table of networks: the paper's six, each with its layers in a file, and current ones known
//! only from records.

mod alexnet;
pub(crate) mod biglstm;
mod inception_v2;
mod resnet50;
mod squeezenet;
mod vgg16;

use crate::{Error, Layer, PAPER_MEAN_RATIO};

/// A table entry: what is known of a network without building its layers.
#[derive(Debug, Clone, Copy)]
pub struct NetworkInfo {
    /// Name on the command line and in `data/recorded`, such as `resnet50`.
    pub name: &'static str,
    /// Display name.
    pub title: &'static str,
    /// Label in figures: the paper's, if it has one.
    pub label: &'static str,
    /// Unit of throughput: `images` or `words`.
    pub unit: &'static str,
    /// Footprint in the paper's workload table, in bytes; 0 if absent.
    pub paper_bytes: u64,
    /// Compression ratio in the paper; the paper's average if it states none for this network.
    pub paper_ratio: f64,
    /// Builds the layers, the input first; `None` if only a record is known.
    pub layers: Option<fn() -> Vec<Layer>>,
    /// Embedded JSON record of its training.
    pub record: &'static str,
}

/// The paper's six, in the order of its table.
pub static PAPER: [NetworkInfo; 6] =
    [biglstm::INFO, alexnet::INFO, inception_v2::INFO, squeezenet::INFO, vgg16::INFO, resnet50::INFO];

/// Current networks trained in bf16, not in the paper.
pub static TODAY: [NetworkInfo; 4] = [
    today("resnet50_bf16", "ResNet50, bf16", include_str!("../../recorded/resnet50_bf16.json")),
    today("vgg16_bf16", "VGG16, bf16", include_str!("../../recorded/vgg16_bf16.json")),
    today("vit_b16_bf16", "ViT-B/16, bf16", include_str!("../../recorded/vit_b16_bf16.json")),
    today("gpt12_bf16", "GPT, 12 layers, bf16", include_str!("../../recorded/gpt12_bf16.json")),
];

const fn today(name: &'static str, label: &'static str, record: &'static str) -> NetworkInfo {
    let (title, unit, paper_ratio) = (label, "samples", PAPER_MEAN_RATIO);
    NetworkInfo { name, title, label, unit, paper_bytes: 0, paper_ratio, layers: None, record }
}

impl NetworkInfo {
    /// Returns the entry of a network, if it exists.
    pub fn named(name: &str) -> Option<&'static Self> {
        PAPER.iter().chain(&TODAY).find(|info| info.name == name)
    }
}

/// A network, layer by layer.
#[derive(Debug, Clone)]
pub struct Network {
    /// Name, such as `resnet50`.
    pub name: &'static str,
    /// Display name.
    pub title: &'static str,
    /// Unit of throughput: `images` or `words`.
    pub unit: &'static str,
    /// Compression ratio in the paper.
    pub paper_ratio: f64,
    /// Layers, the input first; each reads only earlier layers.
    pub layers: Vec<Layer>,
}

impl Network {
    /// Returns the names of the networks with layers, in the order of the paper's table.
    pub fn names() -> [&'static str; PAPER.len()] {
        PAPER.each_ref().map(|info| info.name)
    }

    /// Builds a network by name.
    ///
    /// # Errors
    /// [`Error::Network`] if no network with layers has this name.
    pub fn named(name: &str) -> Result<Self, Error> {
        let found = NetworkInfo::named(name).and_then(|info| Some((info, info.layers?)));
        let (info, layers) = found.ok_or_else(|| Error::Network(name.to_owned()))?;
        let NetworkInfo { name, title, unit, paper_ratio, .. } = *info;
        Ok(Self { name, title, unit, paper_ratio, layers: layers() })
    }

    /// Returns the paper's six networks, in its order.
    pub fn all() -> Vec<Self> {
        Self::names().iter().map(|name| Self::named(name).expect("each of the paper's has layers")).collect()
    }

    /// Returns the number of trainable weights.
    pub fn weights(&self) -> u64 {
        self.layers.iter().map(Layer::weights).sum()
    }

    /// Returns the throughput units per sample: one image, or the words of a sequence.
    pub fn units_per_sample(&self) -> u64 {
        if self.unit == "words" { self.layers[0].output.height } else { 1 }
    }

    /// Returns the multiply-adds of one sample's forward pass, in convolutions and matrix products.
    pub fn multiply_adds(&self) -> u64 {
        self.layers.iter().map(Layer::multiply_adds).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Op;

    #[test]
    fn weight_counts_match_the_published_networks() {
        let weights = |name| Network::named(name).unwrap().weights();
        assert_eq!(weights("alexnet"), 60_965_224);
        assert_eq!(weights("vgg16"), 138_357_544);
        assert_eq!(weights("resnet50"), 25_557_032);
        assert_eq!(weights("squeezenet"), 1_235_496);
        assert_eq!(weights("inception_v2"), 11_295_240);
        // Two layers of 8192 cells projected to 1024, and one embedding table each for input and
        // output.
        let lstm = 2 * (4 * 8192 * (1024 + 1024 + 1) + 8192 * 1024);
        assert_eq!(weights("biglstm"), lstm + 33_278 * 1024 * 2 + 33_278);
    }

    #[test]
    fn multiply_adds_match_the_literature() {
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
    fn layers_read_earlier_layers_and_end_in_softmax() {
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
