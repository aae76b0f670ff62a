//! Allocations of a training iteration, and the tensors of each layer.

use buddy_core::Dtype;
use buddy_record::AllocationInfo;
use buddy_trace::pattern::Array;

use crate::{Layer, Network, Op, VALUE_BYTES};

/// Base of the first allocation; the others follow, aligned to 512 bytes as by PyTorch's allocator.
const BASE: u64 = 1 << 32;
const STEP: u64 = 512;

/// Arrays of one layer; absent ones are empty.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tensors {
    pub(super) weights: Array,
    pub(super) gradients: Array,
    pub(super) momentum: Array,
    /// Output of the forward pass.
    pub(super) output: Array,
    /// Gradient of the above.
    pub(super) gradient: Array,
    /// Saved tensors for the backward pass.
    pub(super) saved: Array,
    /// Gradient of the above.
    pub(super) saved_gradient: Array,
}

/// All arrays of an iteration.
#[derive(Debug, Default)]
pub(super) struct Layout {
    pub(super) allocations: Vec<AllocationInfo>,
    pub(super) tensors: Vec<Tensors>,
}

impl Layout {
    /// ReLU and dropout work in place: they share the arrays of the layer before them.
    pub(super) fn new(network: &Network, batch: u64) -> Self {
        let mut layout = Self::default();
        let last = network.layers.len() - 1;
        for (number, layer) in network.layers.iter().enumerate() {
            let tensors = if in_place(layer) {
                layout.tensors[layer.inputs[0]]
            } else {
                layout.layer(layer, batch, number == last)
            };
            layout.tensors.push(tensors);
        }
        layout
    }

    fn layer(&mut self, layer: &Layer, batch: u64, last: bool) -> Tensors {
        let name = &layer.name;
        let (weights, outputs) = (layer.weights(), layer.output.elements() * batch);
        let saved_gradients = match layer.op {
            Op::Lstm { hidden } => 5 * hidden * layer.output.height * batch,
            _ => 0,
        };
        let given = layer.op == Op::Input;
        let gradients = if given || last { 0 } else { outputs };
        Tensors {
            weights: self.array("weights", name, weights),
            gradients: self.array("gradients", name, weights),
            momentum: self.array("optimizer", name, weights),
            output: if given {
                self.array("input", "batch", outputs)
            } else {
                self.array("activations", name, outputs)
            },
            gradient: self.array("gradients", &format!("{name}.output"), gradients),
            saved: self.array("activations", &format!("{name}.saved1"), layer.saved() * batch),
            saved_gradient: self.array("gradients", &format!("{name}.saved1"), saved_gradients),
        }
    }

    /// Allocates an array; empty for no elements.
    fn array(&mut self, kind: &str, name: &str, elements: u64) -> Array {
        let end = self.allocations.last().map_or(BASE, |last| last.base + last.bytes);
        let base = end.next_multiple_of(STEP);
        if elements > 0 {
            self.allocations.push(AllocationInfo {
                name: format!("{kind}/{name}"),
                call_site: kind.to_owned(),
                base,
                bytes: elements * VALUE_BYTES,
                dtype: Dtype::F32,
            });
        }
        Array { base, element_bytes: VALUE_BYTES as u8 }
    }
}

/// Returns whether a layer overwrites its input.
pub(super) fn in_place(layer: &Layer) -> bool {
    matches!(layer.op, Op::Relu | Op::Dropout)
}

/// Returns the array offset by some elements.
pub(super) fn after(array: Array, elements: u64) -> Array {
    Array { base: array.address(elements), ..array }
}
