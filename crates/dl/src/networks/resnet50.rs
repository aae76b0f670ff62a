//! ResNet50: bottleneck blocks with residual connections; every convolution is normalised.

use crate::{Layer, NetworkInfo, Op, Shape, graph::Graph};

/// Entry in the table of networks.
pub(super) const INFO: NetworkInfo = NetworkInfo {
    name: "resnet50",
    title: "ResNet50",
    label: "ResNet50",
    unit: "images",
    paper_bytes: 4_500_000_000,
    paper_ratio: 1.64,
    layers: Some(layers),
    record: include_str!("../../recorded/resnet50.json"),
};

/// Channels in the bottleneck and blocks of each stage.
const STAGES: [(u64, u64); 4] = [(64, 3), (128, 4), (256, 6), (512, 3)];

fn layers() -> Vec<Layer> {
    let mut net = Graph::new(Shape::new(3, 224, 224));
    net.conv("conv1", 64, [7, 2, 3], false).same("bn1", Op::Norm).relu().pool("maxpool", [3, 2, 0], false);
    for (stage, (channels, blocks)) in (1..).zip(STAGES) {
        for block in 0..blocks {
            let stride = if stage > 1 && block == 0 { 2 } else { 1 };
            bottleneck(&mut net, &format!("layer{stage}.{block}"), channels, stride, block == 0);
        }
    }
    net.pool("avgpool", [7, 1, 0], true).linear("fc", 1000).same("loss", Op::Softmax);
    net.finish()
}

/// Appends a bottleneck block: 1 by 1 down to `channels`, 3 by 3, 1 by 1 up to four times as many.
/// The first block of a stage projects its input by a convolution.
fn bottleneck(net: &mut Graph, name: &str, channels: u64, stride: u64, first: bool) {
    let input = net.current();
    let name = |part: &str| format!("{name}.{part}");
    net.conv(&name("conv1"), channels, [1, 1, 0], false).same(&name("bn1"), Op::Norm).relu();
    net.conv(&name("conv2"), channels, [3, stride, 1], false).same(&name("bn2"), Op::Norm).relu();
    net.conv(&name("conv3"), 4 * channels, [1, 1, 0], false).same(&name("bn3"), Op::Norm);
    let main = net.current();
    let shortcut = if first {
        net.from(input).conv(&name("downsample"), 4 * channels, [1, stride, 0], false);
        net.same(&name("downsample.bn"), Op::Norm).current()
    } else {
        input
    };
    net.from(main).add(&name("add"), shortcut).relu();
}
