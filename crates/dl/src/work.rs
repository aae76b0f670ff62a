//! A training iteration as kernels: matrix products with their sizes, and memory-bound sweeps with
//! their bytes.
//!
//! A convolution is an implicit matrix product over its patches; its traffic is that of the image.
//! Its backward pass is two products: the gradients of input and weights.

use crate::{Layer, Network, Op, VALUE_BYTES};

/// Work of a kernel, as far as time depends on it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Work {
    /// A matrix product, or a convolution as one.
    Product(Product),
    /// A memory-bound pass that moves these bytes.
    Sweep(u64),
}

/// `count` products of an m by k with a k by n matrix, in one kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Product {
    pub(crate) m: u64,
    pub(crate) n: u64,
    pub(crate) k: u64,
    pub(crate) count: u64,
    /// Bytes of both inputs and of the output, over all products, each counted once.
    pub(crate) bytes: [u64; 3],
    /// True for convolutions with a fast algorithm (Winograd, FFT).
    pub(crate) fast: bool,
}

impl Network {
    /// Returns the kernels of one iteration in order: forward, backward, update.
    pub(crate) fn work(&self, batch: u64) -> Vec<Work> {
        let mut work = Vec::new();
        for layer in &self.layers {
            forward(layer, batch, &mut work);
        }
        for layer in self.layers.iter().rev() {
            backward(layer, batch, &mut work);
        }
        for layer in self.layers.iter().filter(|layer| layer.weights() > 0) {
            update(layer, batch, &mut work);
        }
        work
    }
}

fn forward(layer: &Layer, batch: u64, work: &mut Vec<Work>) {
    let [input, output] = [layer.input, layer.output].map(|shape| shape.elements() * batch * VALUE_BYTES);
    match layer.op {
        Op::Input => {}
        Op::Conv { .. } => {
            work.push(Work::Product(convolution(layer, batch)[0]));
            work.extend(bias(layer).then_some(Work::Sweep(2 * output)));
        }
        Op::Linear { .. } => {
            work.push(Work::Product(linear(layer, batch)[0]));
            work.push(Work::Sweep(2 * output));
        }
        Op::Lstm { hidden } => {
            let [gates, project] = recurrent(layer, batch);
            for _ in 0..layer.output.height {
                work.push(Work::Product(gates[0]));
                // Gates are read and saved; cell, its tanh and the output are written.
                work.push(Work::Sweep(12 * hidden * batch * VALUE_BYTES));
                work.push(Work::Product(project[0]));
            }
        }
        Op::Pool { .. } => work.push(Work::Sweep(input + output)),
        Op::Norm | Op::Lrn | Op::Add => work.push(Work::Sweep(3 * output)),
        Op::Relu | Op::Dropout | Op::Softmax | Op::Embedding { .. } => work.push(Work::Sweep(2 * output)),
        Op::Concat => {
            let parts = layer.inputs.len() as u64;
            work.extend((0..parts).map(|_| Work::Sweep(2 * output / parts)));
        }
    }
}

fn backward(layer: &Layer, batch: u64, work: &mut Vec<Work>) {
    let [input, output] = [layer.input, layer.output].map(|shape| shape.elements() * batch * VALUE_BYTES);
    match layer.op {
        Op::Input => {}
        Op::Conv { .. } | Op::Linear { .. } => {
            let products = match layer.op {
                Op::Conv { .. } => convolution(layer, batch),
                _ => linear(layer, batch),
            };
            work.extend(bias(layer).then_some(Work::Sweep(output)));
            work.push(Work::Product(products[2]));
            // The gradient of the images is not needed.
            if layer.inputs != [0] {
                work.push(Work::Product(products[1]));
            }
        }
        Op::Lstm { hidden } => {
            let [gates, project] = recurrent(layer, batch);
            for _ in 0..layer.output.height {
                work.push(Work::Product(project[1]));
                work.push(Work::Sweep(16 * hidden * batch * VALUE_BYTES));
                work.push(Work::Product(gates[1]));
            }
            // Weight gradients are one product each over all steps.
            work.push(Work::Product(gates[2]));
            work.push(Work::Product(project[2]));
        }
        Op::Pool { .. } => work.push(Work::Sweep(2 * input + 2 * output)),
        Op::Norm | Op::Lrn => work.push(Work::Sweep(5 * output)),
        Op::Relu | Op::Dropout | Op::Softmax | Op::Add | Op::Embedding { .. } => {
            work.push(Work::Sweep(3 * output));
        }
        Op::Concat => {
            let parts = layer.inputs.len() as u64;
            work.extend((0..parts).map(|_| Work::Sweep(2 * output / parts)));
        }
    }
}

/// Weight update: weight and momentum are read and written, the gradient is read.
fn update(layer: &Layer, batch: u64, work: &mut Vec<Work>) {
    let touched = match layer.op {
        // Only the rows of the batch's words.
        Op::Embedding { .. } => batch * layer.output.elements(),
        _ => layer.weights(),
    };
    work.push(Work::Sweep(5 * touched * VALUE_BYTES));
    if bias(layer) || layer.op == Op::Norm {
        work.push(Work::Sweep(5 * layer.output.channels * VALUE_BYTES));
    }
}

fn bias(layer: &Layer) -> bool {
    matches!(layer.op, Op::Conv { bias: true, .. } | Op::Linear { bias: true })
}

/// Returns the products of forward pass, input gradient and weight gradient.
fn convolution(layer: &Layer, batch: u64) -> [Product; 3] {
    let Op::Conv { kernel, stride, groups, .. } = layer.op else {
        unreachable!("only convolutions come here")
    };
    let (from, to) = (layer.input.channels / groups, layer.output.channels / groups);
    let (taps, pixels) = (kernel * kernel, batch * layer.output.pixels());
    let [image, result] = [layer.input, layer.output].map(|shape| shape.elements() * batch * VALUE_BYTES);
    let weights = layer.weights() * VALUE_BYTES;
    let fast = kernel >= 3 && stride == 1;
    let product = |[m, n, k]: [u64; 3], bytes| Product { m, n, k, count: groups, bytes, fast };
    [
        product([pixels, to, from * taps], [image, weights, result]),
        // Each input pixel contributes to one in stride squared taps.
        product(
            [batch * layer.input.pixels(), from, (to * taps).div_ceil(stride * stride)],
            [result, weights, image],
        ),
        product([from * taps, to, pixels], [image, result, weights]),
    ]
}

fn linear(layer: &Layer, batch: u64) -> [Product; 3] {
    products(batch * layer.output.pixels(), layer.linear_inputs(), layer.output.channels)
}

/// Returns the products of a step and of all steps: the gates, and the projection.
fn recurrent(layer: &Layer, batch: u64) -> [[Product; 3]; 2] {
    let Op::Lstm { hidden } = layer.op else { unreachable!("only recurrent layers come here") };
    let (from, to, steps) = (layer.input.channels, layer.output.channels, layer.output.height);
    [(from + to, 4 * hidden), (hidden, to)].map(|(inputs, outputs)| {
        let [forward, input, _] = products(batch, inputs, outputs);
        [forward, input, products(batch * steps, inputs, outputs)[2]]
    })
}

/// Returns the products of forward pass, input gradient and weight gradient of a fully connected
/// layer.
fn products(rows: u64, inputs: u64, outputs: u64) -> [Product; 3] {
    let product = |m: u64, n: u64, k: u64| {
        let bytes = [m * k, k * n, m * n].map(|values| values * VALUE_BYTES);
        Product { m, n, k, count: 1, bytes, fast: false }
    };
    [product(rows, outputs, inputs), product(rows, inputs, outputs), product(inputs, outputs, rows)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn multiply_adds(work: &[Work]) -> u64 {
        let of = |work: &Work| match work {
            Work::Product(Product { m, n, k, count, .. }) => m * n * k * count,
            Work::Sweep(_) => 0,
        };
        work.iter().map(of).sum()
    }

    #[test]
    fn an_iteration_has_three_times_the_multiply_adds_of_its_forward_pass() {
        for network in Network::all() {
            let ratio = multiply_adds(&network.work(2)) as f64 / (2 * network.multiply_adds()) as f64;
            // The first layer has no input gradient; strides that do not divide round up.
            assert!((2.8..3.05).contains(&ratio), "{}: {ratio}", network.name);
        }
    }
}
