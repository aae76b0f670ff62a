//! One training iteration as kernels over the network's own allocations: forward, backward, update.
//!
//! Convolutions and matrix products are tiled kernels over images and weights in place; other
//! layers stream. The batch is on the device when the iteration begins. Allocations are named
//! `<kind>/<layer>` with the kind as their call site: `weights`, `gradients`, `optimizer`,
//! `activations` and `input`. The gradient of a layer's output is `gradients/<layer>.output`.

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
    /// Returns one whole training iteration at a batch size.
    pub fn application(&self, batch: u64) -> Application {
        self.application_sampled(batch, 1.0)
    }

    /// Returns a sample of a training iteration, so that a large batch takes minutes instead of
    /// days.
    ///
    /// Each kernel keeps a share of its blocks, in short runs evenly spread over the grid. It keeps
    /// at least 224 blocks, which the paper's GPU runs at once; then the loops of products are
    /// sampled instead. If even that exceeds the share, only some such kernels run, so that each
    /// kind of kernel keeps its proportion. Allocations and addresses are those of the whole
    /// iteration. Cycles of a sample are not the time of an iteration: compare only samples of the
    /// same share. A sample loses L2 reuse between kernels; `docs/notes/case-study.md` quantifies
    /// it.
    ///
    /// # Panics
    /// If the share is not positive.
    pub fn application_sampled(&self, batch: u64, share: f64) -> Application {
        let (layout, plan) = self.plan(batch, share);
        let name = self.name.to_owned();
        Application { name, allocations: layout.allocations, host: Vec::new(), steps: plan.steps }
    }

    /// Returns the warp instructions of a whole iteration.
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
