//! Builder of networks: infers and checks shapes layer by layer.

use crate::{Layer, Shape, layer::Op};

/// A network under construction. Each method appends a named layer that reads the current one.
#[derive(Debug)]
pub(crate) struct Graph {
    layers: Vec<Layer>,
    last: usize,
}

impl Graph {
    /// Creates a network with its input.
    pub(crate) fn new(input: Shape) -> Self {
        let layer =
            Layer { name: "input".to_owned(), op: Op::Input, inputs: Vec::new(), input, output: input };
        Self { layers: vec![layer], last: 0 }
    }

    /// Returns the layers in execution order.
    pub(crate) fn finish(self) -> Vec<Layer> {
        self.layers
    }

    /// Returns the index of the current layer.
    pub(crate) fn current(&self) -> usize {
        self.last
    }

    /// Makes the next layer read this one.
    pub(crate) fn from(&mut self, layer: usize) -> &mut Self {
        self.last = layer;
        self
    }

    /// Returns the output shape of the current layer.
    pub(crate) fn shape(&self) -> Shape {
        self.layers[self.last].output
    }

    fn push(&mut self, name: &str, op: Op, inputs: Vec<usize>, output: Shape) -> &mut Self {
        assert!(self.layers.iter().all(|layer| layer.name != name), "two layers are named {name}");
        let input = self.layers[inputs[0]].output;
        self.last = self.layers.len();
        self.layers.push(Layer { name: name.to_owned(), op, inputs, input, output });
        self
    }

    fn next(&mut self, name: &str, op: Op, output: Shape) -> &mut Self {
        self.push(name, op, vec![self.last], output)
    }

    /// Appends a convolution; `geometry` is kernel, stride and padding.
    pub(crate) fn conv(&mut self, name: &str, channels: u64, geometry: [u64; 3], bias: bool) -> &mut Self {
        self.grouped(name, channels, geometry, 1, bias)
    }

    /// Appends a grouped convolution.
    pub(crate) fn grouped(
        &mut self,
        name: &str,
        channels: u64,
        [kernel, stride, pad]: [u64; 3],
        groups: u64,
        bias: bool,
    ) -> &mut Self {
        let from = self.shape();
        assert!(
            from.channels.is_multiple_of(groups) && channels.is_multiple_of(groups),
            "{name}: {groups} groups"
        );
        let side = |n: u64| {
            assert!(n + 2 * pad >= kernel, "{name}: a filter of {kernel} does not fit {n}");
            (n + 2 * pad - kernel) / stride + 1
        };
        let output = Shape::new(channels, side(from.height), side(from.width));
        self.next(name, Op::Conv { kernel, stride, pad, groups, bias }, output)
    }

    /// Appends pooling; `geometry` is kernel, stride and padding.
    pub(crate) fn pool(&mut self, name: &str, [kernel, stride, pad]: [u64; 3], mean: bool) -> &mut Self {
        let from = self.shape();
        let side = |n: u64| {
            assert!(n + 2 * pad >= kernel, "{name}: a window of {kernel} does not fit {n}");
            (n + 2 * pad - kernel).div_ceil(stride) + 1
        };
        let output = Shape::new(from.channels, side(from.height), side(from.width));
        self.next(name, Op::Pool { kernel, stride, pad, mean }, output)
    }

    /// Appends a layer that keeps the shape.
    pub(crate) fn same(&mut self, name: &str, op: Op) -> &mut Self {
        self.next(name, op, self.shape())
    }

    /// Appends a ReLU named after the current layer.
    pub(crate) fn relu(&mut self) -> &mut Self {
        let name = format!("{}.relu", self.layers[self.last].name);
        self.same(&name, Op::Relu)
    }

    /// Appends a fully connected layer, over the whole image or per step of a sequence.
    pub(crate) fn linear(&mut self, name: &str, outputs: u64) -> &mut Self {
        let sequence = self.shape().width == 1 && self.shape().height > 1;
        let steps = if sequence { self.shape().height } else { 1 };
        self.next(name, Op::Linear { bias: true }, Shape::new(outputs, steps, 1))
    }

    /// Appends an embedding.
    pub(crate) fn embedding(&mut self, name: &str, words: u64, features: u64) -> &mut Self {
        let steps = self.shape().height;
        self.next(name, Op::Embedding { words }, Shape::new(features, steps, 1))
    }

    /// Appends an LSTM layer with projected output.
    pub(crate) fn lstm(&mut self, name: &str, hidden: u64, projection: u64) -> &mut Self {
        let steps = self.shape().height;
        self.next(name, Op::Lstm { hidden }, Shape::new(projection, steps, 1))
    }

    /// Appends a concatenation of these layers' channels.
    pub(crate) fn concat(&mut self, name: &str, inputs: &[usize]) -> &mut Self {
        let first = self.layers[inputs[0]].output;
        let channels = inputs.iter().map(|&input| {
            let shape = self.layers[input].output;
            assert_eq!((shape.height, shape.width), (first.height, first.width), "{name}: images differ");
            shape.channels
        });
        let output = Shape { channels: channels.sum(), ..first };
        self.push(name, Op::Concat, inputs.to_vec(), output)
    }

    /// Appends the sum of the current layer and another.
    pub(crate) fn add(&mut self, name: &str, other: usize) -> &mut Self {
        let output = self.shape();
        assert_eq!(output, self.layers[other].output, "{name}: shapes differ");
        self.push(name, Op::Add, vec![self.last, other], output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_shapes_are_inferred() {
        let mut graph = Graph::new(Shape::new(3, 227, 227));
        graph.conv("c", 96, [11, 4, 0], true).relu().pool("p", [3, 2, 0], false);
        assert_eq!(graph.shape(), Shape::new(96, 27, 27));
        // A window that exceeds the edge counts.
        let mut graph = Graph::new(Shape::new(3, 112, 112));
        graph.pool("p", [3, 2, 0], false).linear("l", 10);
        assert_eq!(graph.layers[1].output.height, 56);
        assert_eq!(graph.layers[2].weights(), 3 * 56 * 56 * 10 + 10);
    }

    #[test]
    #[should_panic(expected = "shapes differ")]
    fn adding_unequal_shapes_panics() {
        let mut graph = Graph::new(Shape::new(3, 8, 8));
        graph.conv("c", 4, [3, 1, 1], true).add("a", 0);
    }
}
