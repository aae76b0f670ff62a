//! One training iteration as kernels over the network's own allocations: forward, backward, update.
//!
//! Convolutions and matrix products are tiled kernels that read images and weights where they lie; the other layers
//! stream. The batch is on the device when the iteration begins, as data loaders see to. Allocations are named `<kind>/<layer>` with the kind as their call site: `weights`, `gradients`,
//! `optimizer`, `activations` and `input`. The gradient of a layer's output is `gradients/<layer>.output`.

mod backward;
mod convolution;
mod forward;
mod plan;
mod recurrent;
mod tensors;

use buddy_trace::Application;

use crate::Network;

use self::{backward::Backward, plan::Plan, tensors::Layout};

impl Network {
    /// One training iteration at a batch size, whole.
    pub fn application(&self, batch: u64) -> Application {
        self.application_sampled(batch, 1.0)
    }

    /// One training iteration of which only a share is run, so that a large batch takes minutes and not days.
    ///
    /// Of each kernel a share of the blocks is kept, in short runs evenly spread over the grid. Where that would leave
    /// fewer than 224 blocks, which the paper's GPU runs at a time, 224 are kept and the loops of products are
    /// thinned. Where even that is more than the share, only some of such kernels are run, so that each kind of
    /// kernel keeps its part of the whole. Allocations and addresses are those of the whole iteration. Cycles of a
    /// sample are no time of an iteration: compare samples of the same share with each other. A sample loses what one
    /// kernel leaves in L2 for the next; `docs/notes/case-study.md` says how much that matters.
    ///
    /// # Panics
    /// If the share is not above 0.
    pub fn application_sampled(&self, batch: u64, share: f64) -> Application {
        let (layout, plan) = self.plan(batch, share);
        let name = self.name.to_owned();
        Application { name, allocations: layout.allocations, host: Vec::new(), steps: plan.steps }
    }

    /// Warp instructions of a whole iteration.
    pub fn warp_instructions(&self, batch: u64) -> u64 {
        self.plan(batch, 1.0).1.instructions
    }

    fn plan(&self, batch: u64, share: f64) -> (Layout, Plan) {
        assert!(share > 0.0, "a share of {share}: use more than 0");
        let layout = Layout::new(self, batch);
        let mut plan = Plan::new(share.min(1.0));
        for (number, layer) in self.layers.iter().enumerate() {
            forward::forward(layer, number, batch, &layout, &mut plan);
        }
        let mut pass = Backward { batch, layout: &layout, written: Vec::new() };
        for (number, layer) in self.layers.iter().enumerate().rev() {
            pass.layer(layer, number, &mut plan);
        }
        for (number, layer) in self.layers.iter().enumerate() {
            backward::update(layer, number, batch, &layout, &mut plan);
        }
        (layout, plan)
    }
}

#[cfg(test)]
mod tests;
