//! Inception v2: Inception with batch normalisation, in modules of four branches.

use crate::{Layer, NetworkInfo, Op, PAPER_MEAN_RATIO, Shape, graph::Graph};

/// Entry in the table of networks.
pub(super) const INFO: NetworkInfo = NetworkInfo {
    name: "inception_v2",
    title: "Inception v2",
    label: "Inception_V2",
    unit: "images",
    paper_bytes: 3_210_000_000,
    paper_ratio: PAPER_MEAN_RATIO,
    layers: Some(layers),
    record: include_str!("../../recorded/inception_v2.json"),
};

/// Channels of a module: 1x1; 3x3 after its reduction; double 3x3 after its reduction; the pooled
/// branch, and whether it pools by the mean.
type Module = (&'static str, u64, [u64; 2], [u64; 2], u64, bool);

/// Modules in order. Those without a 1x1 branch halve the image.
const MODULES: [Module; 10] = [
    ("3a", 64, [64, 64], [64, 96], 32, true),
    ("3b", 64, [64, 96], [64, 96], 64, true),
    ("3c", 0, [128, 160], [64, 96], 0, false),
    ("4a", 224, [64, 96], [96, 128], 128, true),
    ("4b", 192, [96, 128], [96, 128], 128, true),
    ("4c", 160, [128, 160], [128, 160], 128, true),
    ("4d", 96, [128, 192], [160, 192], 128, true),
    ("4e", 0, [128, 192], [192, 256], 0, false),
    ("5a", 352, [192, 320], [160, 224], 128, true),
    ("5b", 352, [192, 320], [192, 224], 128, false),
];

fn layers() -> Vec<Layer> {
    let mut net = Graph::new(Shape::new(3, 224, 224));
    conv(&mut net, "conv1", 64, [7, 2, 3]);
    net.pool("pool1", [3, 2, 0], false);
    conv(&mut net, "conv2_reduce", 64, [1, 1, 0]);
    conv(&mut net, "conv2", 192, [3, 1, 1]);
    net.pool("pool2", [3, 2, 0], false);
    for module in MODULES {
        inception(&mut net, module);
    }
    net.pool("avgpool", [7, 1, 0], true).linear("fc", 1000).same("loss", Op::Softmax);
    net.finish()
}

fn inception(net: &mut Graph, (name, one, three, double, pooled, mean): Module) {
    let input = net.current();
    let name = |part: &str| format!("inception_{name}.{part}");
    let stride = if one == 0 { 2 } else { 1 };
    let mut branches = Vec::new();
    if one > 0 {
        branches.push(conv(net, &name("1x1"), one, [1, 1, 0]));
    }
    conv(net.from(input), &name("3x3_reduce"), three[0], [1, 1, 0]);
    branches.push(conv(net, &name("3x3"), three[1], [3, stride, 1]));
    conv(net.from(input), &name("double3x3_reduce"), double[0], [1, 1, 0]);
    conv(net, &name("double3x3_1"), double[1], [3, 1, 1]);
    branches.push(conv(net, &name("double3x3_2"), double[1], [3, stride, 1]));
    let pad = if stride == 1 { 1 } else { 0 };
    net.from(input).pool(&name("pool"), [3, stride, pad], mean);
    if pooled > 0 {
        conv(net, &name("pool_proj"), pooled, [1, 1, 0]);
    }
    branches.push(net.current());
    net.concat(&name("concat"), &branches);
}

/// Appends a convolution with normalisation and ReLU.
fn conv(net: &mut Graph, name: &str, channels: u64, geometry: [u64; 3]) -> usize {
    net.conv(name, channels, geometry, true).same(&format!("{name}.bn"), Op::Norm).relu().current()
}
