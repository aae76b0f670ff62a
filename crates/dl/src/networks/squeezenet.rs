//! SqueezeNet v1.1: fire modules, which squeeze the channels and expand them with two filter sizes.

use crate::{Layer, NetworkInfo, Op, Shape, graph::Graph};

/// Entry in the table of networks.
pub(super) const INFO: NetworkInfo = NetworkInfo {
    name: "squeezenet",
    title: "SqueezeNet v1.1",
    label: "SqueezeNetv1.1",
    unit: "images",
    paper_bytes: 2_030_000_000,
    paper_ratio: 1.49,
    layers: Some(layers),
    record: include_str!("../../recorded/squeezenet.json"),
};

fn layers() -> Vec<Layer> {
    let mut net = Graph::new(Shape::new(3, 224, 224));
    net.conv("conv1", 64, [3, 2, 0], true).relu().pool("pool1", [3, 2, 0], false);
    fire(&mut net, 2, 16, 64);
    fire(&mut net, 3, 16, 64);
    net.pool("pool3", [3, 2, 0], false);
    fire(&mut net, 4, 32, 128);
    fire(&mut net, 5, 32, 128);
    net.pool("pool5", [3, 2, 0], false);
    fire(&mut net, 6, 48, 192);
    fire(&mut net, 7, 48, 192);
    fire(&mut net, 8, 64, 256);
    fire(&mut net, 9, 64, 256);
    net.same("drop9", Op::Dropout).conv("conv10", 1000, [1, 1, 0], true).relu();
    net.pool("avgpool", [13, 1, 0], true).same("loss", Op::Softmax);
    net.finish()
}

/// Appends a fire module: `squeeze` channels, then `expand` each from 1 by 1 and 3 by 3 filters.
fn fire(net: &mut Graph, number: u32, squeeze: u64, expand: u64) {
    let name = |part: &str| format!("fire{number}.{part}");
    let squeezed = net.conv(&name("squeeze"), squeeze, [1, 1, 0], true).relu().current();
    let small = net.conv(&name("expand1x1"), expand, [1, 1, 0], true).relu().current();
    let large = net.from(squeezed).conv(&name("expand3x3"), expand, [3, 1, 1], true).relu().current();
    net.concat(&name("concat"), &[small, large]);
}
