//! An LSTM layer: products over all steps where these are independent, then step by step.

use buddy_trace::pattern::{Array, Operand, Tiled};

use super::{
    backward::{Backward, split_k},
    plan::Plan,
    tensors::{Layout, Tensors, after},
};
use crate::{Layer, Op};

/// Sizes of a layer, and views of its arrays.
struct Parts {
    hidden: u64,
    from: u64,
    to: u64,
    steps: u64,
    batch: u64,
    own: Tensors,
}

impl Parts {
    fn new(layer: &Layer, batch: u64, own: Tensors) -> Self {
        let Op::Lstm { hidden } = layer.op else { unreachable!("only recurrent layers") };
        let (from, to, steps) = (layer.input.channels, layer.output.channels, layer.output.height);
        Self { hidden, from, to, steps, batch, own }
    }

    /// Returns the weights or gradients of the input, of the recurrent output and of the
    /// projection.
    fn weights(&self, all: Array) -> [Array; 3] {
        let gates = 4 * self.hidden;
        [0, gates * self.from, gates * (self.from + self.to)].map(|first| after(all, first))
    }

    /// Returns a slice of the saved tensors at a step. In units of `hidden`: four gates, the cell,
    /// its tanh and the unprojected output; `first` selects the unit.
    fn saved(&self, first: u64, step: u64) -> Array {
        let width = if first == 0 { 4 } else { 1 };
        self.part(self.own.saved, first, width, step)
    }

    /// Returns the gradients of the gates (0) or of the unprojected output (4).
    fn saved_gradient(&self, first: u64, step: u64) -> Array {
        self.part(self.own.saved_gradient, first, if first == 0 { 4 } else { 1 }, step)
    }

    fn part(&self, all: Array, first: u64, width: u64, step: u64) -> Array {
        let cells = self.batch * self.hidden;
        after(all, cells * (first * self.steps + width * step))
    }

    /// Returns the output or its gradient at a step.
    fn at(&self, all: Array, step: u64) -> Array {
        after(all, step * self.batch * self.to)
    }

    /// Returns the four gates of an array.
    fn four(&self, gates: Array) -> [Array; 4] {
        [0, 1, 2, 3].map(|gate| after(gates, gate * self.batch * self.hidden))
    }
}

pub(super) fn forward(layer: &Layer, number: usize, batch: u64, layout: &Layout, plan: &mut Plan) {
    let (name, own) = (layer.name.as_str(), layout.tensors[number]);
    let parts = Parts::new(layer, batch, own);
    let Parts { hidden, from, to, steps, .. } = parts;
    let x = layout.tensors[layer.inputs[0]].output;
    let [of_input, of_output, projection] = parts.weights(own.weights);
    let gates = 4 * hidden;
    let operands =
        [Operand::rows(x, from), Operand::rows(of_input, from), Operand::rows(parts.saved(0, 0), gates)];
    plan.tiled(Tiled::new(name, operands, [steps * batch, gates, from]));
    for step in 0..steps {
        let last = step.saturating_sub(1);
        let now = parts.saved(0, step);
        let operands = [
            Operand::rows(parts.at(own.output, last), to),
            Operand::rows(of_output, to),
            Operand::rows(now, gates),
        ];
        plan.tiled(Tiled::new(name, operands, [batch, gates, to]).accumulating());
        let [cell, tangent, unprojected] = [4, 5, 6].map(|first| parts.saved(first, step));
        let four = parts.four(now);
        let inputs = [&four[..], &[parts.saved(4, last)]].concat();
        let outputs = [&four[..], &[cell, tangent, unprojected]].concat();
        plan.stream(name, &inputs, &outputs, batch * hidden, 14);
        let operands = [
            Operand::rows(unprojected, hidden),
            Operand::rows(projection, hidden),
            Operand::rows(parts.at(own.output, step), to),
        ];
        plan.tiled(split_k(Tiled::new(name, operands, [batch, to, hidden])));
    }
}

pub(super) fn backward(layer: &Layer, number: usize, pass: &mut Backward<'_>, plan: &mut Plan) {
    let (name, batch, own) = (layer.name.as_str(), pass.batch, pass.layout.tensors[number]);
    let parts = Parts::new(layer, batch, own);
    let Parts { hidden, to, steps, .. } = parts;
    let [_, of_output, projection] = parts.weights(own.weights);
    let gates = 4 * hidden;
    for step in (0..steps).rev() {
        let [d_gates, d_unprojected] = [0, 4].map(|first| parts.saved_gradient(first, step));
        let operands = [
            Operand::rows(parts.at(own.gradient, step), to),
            Operand::columns(projection, hidden),
            Operand::rows(d_unprojected, hidden),
        ];
        plan.tiled(split_k(Tiled::new(name, operands, [batch, hidden, to])));
        let four = parts.four(parts.saved(0, step));
        let inputs = [&four[..], &[parts.saved(4, step), parts.saved(5, step), d_unprojected]].concat();
        plan.stream(name, &inputs, &parts.four(d_gates), batch * hidden, 18);
        let operands = [
            Operand::rows(d_gates, gates),
            Operand::columns(of_output, to),
            Operand::rows(parts.at(own.gradient, step.saturating_sub(1)), to),
        ];
        plan.tiled(split_k(Tiled::new(name, operands, [batch, to, gates]).accumulating()));
    }
    gradients(layer, &parts, pass, plan);
}

/// Adds the gradients of the input and of all weights, over all steps at once.
fn gradients(layer: &Layer, parts: &Parts, pass: &mut Backward<'_>, plan: &mut Plan) {
    let Parts { hidden, from, to, steps, batch, own } = *parts;
    let (rows, gates, name) = (steps * batch, 4 * hidden, layer.name.as_str());
    let x = pass.layout.tensors[layer.inputs[0]].output;
    let [of_input, _, _] = parts.weights(own.weights);
    let [d_input, d_output, d_projection] = parts.weights(own.gradients);
    let (d_gates, unprojected) = (parts.saved_gradient(0, 0), parts.saved(6, 0));
    for (rows_of, width, columns_of, columns, gradient) in [
        (d_gates, gates, x, from, d_input),
        (d_gates, gates, own.output, to, d_output),
        (own.gradient, to, unprojected, hidden, d_projection),
    ] {
        let operands = [
            Operand::columns(rows_of, width),
            Operand::columns(columns_of, columns),
            Operand::rows(gradient, columns),
        ];
        plan.tiled(split_k(Tiled::new(name, operands, [width, columns, rows])));
    }
    let (dx, adds) = pass.target(layer.inputs[0]);
    let operands = [Operand::rows(d_gates, gates), Operand::columns(of_input, from), Operand::rows(dx, from)];
    let kernel = Tiled::new(name, operands, [rows, from, gates]);
    plan.tiled(if adds { kernel.accumulating() } else { kernel });
}
