//! A convolution as three implicit-GEMM products: forward, input gradient and weight gradient.

use buddy_trace::pattern::{Array, Images, Operand, Stride, Tiled};

use super::tensors::after;
use crate::{Layer, Op};

/// One group of a convolution as products.
pub(super) struct Convolution {
    images: Images,
    channels: [u64; 2],
    group: u64,
    own: [u64; 2],
    batch: u64,
}

impl Convolution {
    pub(super) fn new(layer: &Layer, batch: u64, group: u64) -> Self {
        let Op::Conv { kernel, stride, pad, groups, .. } = layer.op else {
            unreachable!("only convolutions")
        };
        let channels = [layer.input.channels, layer.output.channels];
        let own = channels.map(|channels| channels / groups);
        let images = Images {
            array: Array { base: 0, element_bytes: 4 },
            channels: channels[0],
            first_channel: group * own[0],
            size: [layer.input.height, layer.input.width],
            places: [layer.output.height, layer.output.width],
            kernel,
            stride,
            pad,
            backwards: false,
        };
        Self { images, channels, group, own, batch }
    }

    fn pixels(&self) -> [u64; 2] {
        [self.images.size, self.images.places].map(|[rows, columns]| rows * columns)
    }

    fn taps(&self) -> u64 {
        self.images.kernel * self.images.kernel
    }

    /// Returns the group's slice of the weights: outputs by inputs by taps.
    fn weights(&self, weights: Array) -> Array {
        after(weights, self.group * self.own[0] * self.own[1] * self.taps())
    }

    /// Returns the strides of pixels and channels of the input (0) or the output (1).
    fn pixels_by_channels(&self, which: usize) -> [Stride; 2] {
        let (channels, pixels) = (self.channels[which], self.pixels()[which]);
        [Stride { step: 1, run: pixels, outer: channels * pixels }, Stride::even(pixels)]
    }

    /// Returns the group's first channel of the input or the output.
    fn first_of_group(&self, images: Array, which: usize) -> Array {
        after(images, self.group * self.own[which] * self.pixels()[which])
    }

    pub(super) fn forward(&self, name: &str, x: Array, weights: Array, y: Array) -> Tiled {
        let [from, to] = self.own;
        let depth = from * self.taps();
        let [side, channel] = self.pixels_by_channels(1);
        let operands = [
            Operand::Patches { images: Images { array: x, ..self.images }, deep_pixels: false },
            Operand::rows(self.weights(weights), depth),
            Operand::Matrix { array: self.first_of_group(y, 1), side, depth: channel },
        ];
        Tiled::new(name, operands, [self.batch * self.pixels()[1], to, depth])
    }

    /// Returns the kernel of the input gradient.
    pub(super) fn input_gradient(&self, name: &str, dy: Array, weights: Array, dx: Array) -> Tiled {
        let ([from, to], taps) = (self.own, self.taps());
        let [side, channel] = self.pixels_by_channels(0);
        let images = Images {
            array: dy,
            channels: self.channels[1],
            first_channel: self.group * to,
            size: self.images.places,
            places: self.images.size,
            backwards: true,
            ..self.images
        };
        let taps_of_output = Stride { step: 1, run: taps, outer: from * taps };
        let operands = [
            Operand::Patches { images, deep_pixels: false },
            Operand::Matrix { array: self.weights(weights), side: Stride::even(taps), depth: taps_of_output },
            Operand::Matrix { array: self.first_of_group(dx, 0), side, depth: channel },
        ];
        Tiled::new(name, operands, [self.batch * self.pixels()[0], from, to * taps])
    }

    /// Returns the kernel of the weight gradient, summed over all pixels of the batch.
    pub(super) fn weight_gradient(&self, name: &str, x: Array, dy: Array, gradients: Array) -> Tiled {
        let ([from, to], taps) = (self.own, self.taps());
        let [pixel, channel] = self.pixels_by_channels(1);
        let operands = [
            Operand::Matrix { array: self.first_of_group(dy, 1), side: channel, depth: pixel },
            Operand::Patches { images: Images { array: x, ..self.images }, deep_pixels: true },
            Operand::rows(self.weights(gradients), from * taps),
        ];
        Tiled::new(name, operands, [to, from * taps, self.batch * self.pixels()[1]])
    }
}
