//! The backward pass and the update of the weights.

use buddy_trace::pattern::{Array, Operand, Pool, Rows, Tiled};

use super::{
    convolution::Convolution,
    forward::{linear, parts, window, word},
    plan::Plan,
    tensors::{Layout, after},
};
use crate::{Layer, Op};

/// Target number of blocks of a product over the whole batch; with fewer, split-K applies.
const ENOUGH_BLOCKS: u64 = 256;

/// Backward pass. A gradient that was already written is accumulated into.
pub(super) struct Backward<'a> {
    pub(super) batch: u64,
    pub(super) layout: &'a Layout,
    /// Addresses of the gradients already written.
    pub(super) written: Vec<u64>,
}

impl Backward<'_> {
    /// Returns the gradient of a layer's input, and whether to accumulate into it.
    pub(super) fn target(&mut self, input: usize) -> (Array, bool) {
        let gradient = self.layout.tensors[input].gradient;
        let known = self.written.contains(&gradient.base);
        if !known {
            self.written.push(gradient.base);
        }
        (gradient, known)
    }

    pub(super) fn layer(&mut self, layer: &Layer, number: usize, plan: &mut Plan) {
        let own = self.layout.tensors[number];
        let elements = layer.output.elements() * self.batch;
        let name = layer.name.as_str();
        match layer.op {
            Op::Input => {}
            Op::Conv { .. } => self.convolution(layer, number, plan),
            Op::Linear { .. } => self.linear(layer, number, plan),
            Op::Lstm { .. } => super::recurrent::backward(layer, number, self, plan),
            Op::Embedding { .. } => {
                let words = self.layout.tensors[layer.inputs[0]].output;
                let (count, columns) = (self.batch * layer.output.height, layer.output.channels);
                plan.rows(
                    Rows::new(name, [words, own.gradients, own.gradient], count, columns, word)
                        .accumulating(),
                );
            }
            Op::Pool { .. } => {
                let input = self.layout.tensors[layer.inputs[0]].output;
                let (target, adds) = self.target(layer.inputs[0]);
                let window = window(layer, self.batch);
                let kernel = Pool::backward(name, window, input, [own.output, own.gradient], target);
                plan.pool(if adds { kernel.accumulating() } else { kernel });
            }
            Op::Norm => {
                let input = self.layout.tensors[layer.inputs[0]].output;
                plan.stream(name, &[input, own.gradient], &[], elements, 4);
                self.stream(layer, &[input, own.gradient], 4, plan);
            }
            Op::Lrn => {
                let input = self.layout.tensors[layer.inputs[0]].output;
                self.stream(layer, &[input, own.output, own.saved, own.gradient], 16, plan);
            }
            Op::Softmax => self.stream(layer, &[own.output], 2, plan),
            Op::Relu | Op::Dropout => {
                plan.stream(name, &[own.output, own.gradient], &[own.gradient], elements, 1);
            }
            Op::Add => {
                for &input in &layer.inputs {
                    let (target, adds) = self.target(input);
                    let inputs = if adds { vec![own.gradient, target] } else { vec![own.gradient] };
                    plan.stream(name, &inputs, &[target], elements, 1);
                }
            }
            Op::Concat => {
                for (part, from, elements) in parts(layer, self.batch, self.layout) {
                    let (target, _) = self.target(part);
                    plan.stream(name, &[after(own.gradient, from)], &[target], elements, 1);
                }
            }
        }
    }

    /// Streams whole arrays to the gradient of the layer's input.
    fn stream(&mut self, layer: &Layer, inputs: &[Array], arithmetic: u32, plan: &mut Plan) {
        let (target, adds) = self.target(layer.inputs[0]);
        let mut inputs = inputs.to_vec();
        inputs.extend(adds.then_some(target));
        let elements = layer.output.elements() * self.batch;
        plan.stream(&layer.name, &inputs, &[target], elements, arithmetic);
    }

    fn convolution(&mut self, layer: &Layer, number: usize, plan: &mut Plan) {
        let Op::Conv { groups, bias, .. } = layer.op else { unreachable!("only convolutions") };
        let (own, name) = (self.layout.tensors[number], layer.name.as_str());
        let x = self.layout.tensors[layer.inputs[0]].output;
        if bias {
            plan.stream(name, &[own.gradient], &[], layer.output.elements() * self.batch, 1);
        }
        // The gradient of the images is not needed.
        let target = (layer.inputs[0] != 0).then(|| self.target(layer.inputs[0]));
        for group in 0..groups {
            let convolution = Convolution::new(layer, self.batch, group);
            plan.tiled(split_k(convolution.weight_gradient(name, x, own.gradient, own.gradients)));
            if let Some((dx, adds)) = target {
                let kernel = convolution.input_gradient(name, own.gradient, own.weights, dx);
                plan.tiled(if adds { kernel.accumulating() } else { kernel });
            }
        }
    }

    fn linear(&mut self, layer: &Layer, number: usize, plan: &mut Plan) {
        let (own, name) = (self.layout.tensors[number], layer.name.as_str());
        let x = self.layout.tensors[layer.inputs[0]].output;
        let (rows, from, to) = linear(layer, self.batch);
        plan.stream(name, &[own.gradient], &[], rows * to, 1);
        let weights = [
            Operand::columns(own.gradient, to),
            Operand::columns(x, from),
            Operand::rows(own.gradients, from),
        ];
        plan.tiled(split_k(Tiled::new(name, weights, [to, from, rows])));
        let (dx, adds) = self.target(layer.inputs[0]);
        let inputs =
            [Operand::rows(own.gradient, to), Operand::columns(own.weights, from), Operand::rows(dx, from)];
        let kernel = Tiled::new(name, inputs, [rows, from, to]);
        plan.tiled(split_k(if adds { kernel.accumulating() } else { kernel }));
    }
}

/// Adds the weight update: weight and momentum are read and written, the gradient is read. Of an
/// embedding, only the rows of the batch's words.
pub(super) fn update(layer: &Layer, number: usize, batch: u64, layout: &Layout, plan: &mut Plan) {
    let own = layout.tensors[number];
    let elements = match layer.op {
        Op::Embedding { .. } => layer.weights().min(layer.output.elements() * batch),
        _ => layer.weights(),
    };
    if elements > 0 {
        let arrays = [own.weights, own.gradients, own.momentum];
        plan.stream(&layer.name, &arrays, &[own.weights, own.momentum], elements, 3);
    }
}

/// Applies split-K to a product with too few tiles to fill a GPU.
pub(super) fn split_k(kernel: Tiled) -> Tiled {
    let splits = ENOUGH_BLOCKS / kernel.blocks();
    if splits > 1 { kernel.split(splits) } else { kernel }
}
