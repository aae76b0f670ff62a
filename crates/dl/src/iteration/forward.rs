//! The forward pass: one or two kernels per layer.

use buddy_trace::pattern::{Array, Operand, Pool, Rows, Tiled, Window, scramble};

use super::{
    convolution::Convolution,
    plan::Plan,
    tensors::{Layout, after},
};
use crate::{Layer, Op, networks::biglstm::WORDS};

pub(super) fn forward(layer: &Layer, number: usize, batch: u64, layout: &Layout, plan: &mut Plan) {
    let own = layout.tensors[number];
    let input = |index: usize| layout.tensors[layer.inputs[index]].output;
    let elements = layer.output.elements() * batch;
    let name = layer.name.as_str();
    match layer.op {
        Op::Input => {}
        Op::Conv { groups, .. } => {
            for group in 0..groups {
                let convolution = Convolution::new(layer, batch, group);
                plan.tiled(convolution.forward(name, input(0), own.weights, own.output));
            }
        }
        Op::Linear { .. } => {
            let (rows, from, to) = linear(layer, batch);
            let operands = [
                Operand::rows(input(0), from),
                Operand::rows(own.weights, from),
                Operand::rows(own.output, to),
            ];
            plan.tiled(Tiled::new(name, operands, [rows, to, from]));
        }
        Op::Lstm { .. } => super::recurrent::forward(layer, number, batch, layout, plan),
        Op::Embedding { .. } => {
            let arrays = [input(0), own.weights, own.output];
            plan.rows(Rows::new(name, arrays, batch * layer.output.height, layer.output.channels, word));
        }
        Op::Pool { .. } => plan.pool(Pool::forward(name, window(layer, batch), input(0), own.output)),
        Op::Norm | Op::Softmax => {
            plan.stream(name, &[input(0)], &[], elements, 2);
            plan.stream(name, &[input(0)], &[own.output], elements, 3);
        }
        Op::Lrn => plan.stream(name, &[input(0)], &[own.saved, own.output], elements, 12),
        Op::Relu | Op::Dropout => plan.stream(name, &[own.output], &[own.output], elements, 1),
        Op::Add => plan.stream(name, &[input(0), input(1)], &[own.output], elements, 1),
        Op::Concat => {
            for (part, from, elements) in parts(layer, batch, layout) {
                plan.stream(name, &[layout.tensors[part].output], &[after(own.output, from)], elements, 1);
            }
        }
    }
}

/// Returns the inputs of a concatenation as layer, offset and length. Modelled as contiguous over
/// the whole batch; real layouts alternate per image over the same bytes.
pub(super) fn parts(layer: &Layer, batch: u64, layout: &Layout) -> Vec<(usize, u64, u64)> {
    let mut from = 0;
    let share = |part: usize| {
        let bytes =
            |array: Array| layout.allocations.iter().find(|one| one.base == array.base).map(|one| one.bytes);
        let elements = bytes(layout.tensors[part].output).unwrap_or(0) / crate::VALUE_BYTES;
        from += elements;
        (part, from - elements, elements)
    };
    let parts: Vec<_> = layer.inputs.iter().copied().map(share).collect();
    debug_assert_eq!(from, layer.output.elements() * batch, "{}", layer.name);
    parts
}

/// Returns rows, inputs and outputs of a fully connected layer's product.
pub(super) fn linear(layer: &Layer, batch: u64) -> (u64, u64, u64) {
    (batch * layer.output.pixels(), layer.linear_inputs(), layer.output.channels)
}

pub(super) fn window(layer: &Layer, batch: u64) -> Window {
    let Op::Pool { kernel, stride, pad, .. } = layer.op else { unreachable!("only pools have windows") };
    let [input, output] = [layer.input, layer.output].map(|shape| [shape.height, shape.width]);
    Window { planes: batch * layer.output.channels, input, output, kernel, stride, pad }
}

/// Returns the word at a position of the text. Word frequencies follow Zipf's law.
pub(super) fn word(place: u64) -> u64 {
    let fraction = scramble(place) as f64 / u64::MAX as f64;
    ((WORDS as f64).powf(fraction) as u64 - 1).min(WORDS - 1)
}
