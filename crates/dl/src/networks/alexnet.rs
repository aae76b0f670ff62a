//! AlexNet as in Caffe: grouped convolutions and local response normalisation.

use crate::{Layer, NetworkInfo, Op, PAPER_MEAN_RATIO, Shape, graph::Graph};

/// Entry in the table of networks.
pub(super) const INFO: NetworkInfo = NetworkInfo {
    name: "alexnet",
    title: "AlexNet",
    label: "AlexNet",
    unit: "images",
    paper_bytes: 8_850_000_000,
    paper_ratio: PAPER_MEAN_RATIO,
    layers: Some(layers),
    record: include_str!("../../recorded/alexnet.json"),
};

fn layers() -> Vec<Layer> {
    let mut net = Graph::new(Shape::new(3, 227, 227));
    net.conv("conv1", 96, [11, 4, 0], true).relu().same("norm1", Op::Lrn).pool("pool1", [3, 2, 0], false);
    net.grouped("conv2", 256, [5, 1, 2], 2, true).relu();
    net.same("norm2", Op::Lrn).pool("pool2", [3, 2, 0], false);
    net.conv("conv3", 384, [3, 1, 1], true).relu();
    net.grouped("conv4", 384, [3, 1, 1], 2, true).relu();
    net.grouped("conv5", 256, [3, 1, 1], 2, true).relu().pool("pool5", [3, 2, 0], false);
    net.linear("fc6", 4096).relu().same("drop6", Op::Dropout);
    net.linear("fc7", 4096).relu().same("drop7", Op::Dropout);
    net.linear("fc8", 1000).same("loss", Op::Softmax);
    net.finish()
}
