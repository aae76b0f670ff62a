//! VGG16: thirteen convolutions of 3 by 3 and three fully connected layers.

use crate::{Layer, NetworkInfo, Op, PAPER_MEAN_RATIO, Shape, graph::Graph};

/// Entry in the table of networks.
pub(super) const INFO: NetworkInfo = NetworkInfo {
    name: "vgg16",
    title: "VGG16",
    label: "VGG16",
    unit: "images",
    paper_bytes: 11_080_000_000,
    paper_ratio: PAPER_MEAN_RATIO,
    layers: Some(layers),
    record: include_str!("../../recorded/vgg16.json"),
};

/// Channels and convolutions of each stage, each followed by pooling.
const STAGES: [(u64, u64); 5] = [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)];

fn layers() -> Vec<Layer> {
    let mut net = Graph::new(Shape::new(3, 224, 224));
    for (stage, (channels, convolutions)) in (1..).zip(STAGES) {
        for number in 1..=convolutions {
            net.conv(&format!("conv{stage}_{number}"), channels, [3, 1, 1], true).relu();
        }
        net.pool(&format!("pool{stage}"), [2, 2, 0], false);
    }
    net.linear("fc6", 4096).relu().same("drop6", Op::Dropout);
    net.linear("fc7", 4096).relu().same("drop7", Op::Dropout);
    net.linear("fc8", 1000).same("loss", Op::Softmax);
    net.finish()
}
