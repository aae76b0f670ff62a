//! Kernels in order, and the sampled share of each.

use buddy_trace::{
    Kernel, Launch, Step,
    pattern::{Array, Pool, Rows, Sampled, Stream, Tiled},
};

/// Fewest blocks of a sampled kernel: four per SM of the paper's GPU, all resident. Fewer would
/// expose latencies that the whole kernel hides.
const MIN_BLOCKS: u64 = 224;
/// Elements per block of a streaming kernel: eight for each of 256 threads.
const BLOCK_ELEMENTS: u64 = 2048;

/// The kernels of an iteration.
pub(super) struct Plan {
    /// Share of the work to run.
    pub(super) share: f64,
    pub(super) steps: Vec<Step>,
    /// Warp instructions of all kernels, unsampled.
    pub(super) instructions: u64,
    /// Fractional kernels due: products, and others.
    due: [f64; 2],
}

impl Plan {
    pub(super) fn new(share: f64) -> Self {
        Self { share, steps: Vec::new(), instructions: 0, due: [0.5; 2] }
    }

    /// Adds a product. A sample keeps a share of its blocks, or the fewest blocks and a share of
    /// their loops.
    pub(super) fn tiled(&mut self, kernel: Tiled) {
        let whole = kernel.instructions();
        self.instructions += whole;
        let sampled = self.sampled_blocks(&kernel);
        let part = sampled as f64 / kernel.blocks() as f64;
        let sample = kernel.sample_depth((self.share / part).min(1.0));
        let due_share = self.share * whole as f64 / (sample.instructions() as f64 * part);
        self.push(sample, sampled, due_share, 0);
    }

    pub(super) fn pool(&mut self, kernel: Pool) {
        self.instructions += kernel.instructions();
        self.other(kernel);
    }

    pub(super) fn rows(&mut self, kernel: Rows) {
        self.instructions += kernel.instructions();
        self.other(kernel);
    }

    /// Adds a kernel that streams whole arrays.
    pub(super) fn stream(
        &mut self,
        name: &str,
        inputs: &[Array],
        outputs: &[Array],
        elements: u64,
        arithmetic: u32,
    ) {
        let blocks = u32::try_from(elements.div_ceil(BLOCK_ELEMENTS)).expect("at most 2^43 elements");
        let kernel = Stream::new(Launch::linear(name, blocks, 256), inputs, outputs, elements, arithmetic);
        self.instructions += kernel.instructions();
        self.other(kernel);
    }

    fn other(&mut self, kernel: impl Kernel + Clone + Sync + 'static) {
        let sampled = self.sampled_blocks(&kernel);
        let due_share = self.share * kernel.launch().blocks() as f64 / sampled as f64;
        self.push(kernel, sampled, due_share, 1);
    }

    fn sampled_blocks(&self, kernel: &impl Kernel) -> u64 {
        let blocks = kernel.launch().blocks();
        ((blocks as f64 * self.share).ceil() as u64).max(MIN_BLOCKS).min(blocks)
    }

    /// Adds `sampled` blocks of a kernel if one is due. A sample larger than its share accrues only
    /// the fraction that the share allows, so it runs once in several such kernels.
    fn push(
        &mut self,
        kernel: impl Kernel + Clone + Sync + 'static,
        sampled: u64,
        due_share: f64,
        kind: usize,
    ) {
        self.due[kind] += due_share.min(1.0);
        if self.due[kind] < 1.0 {
            return;
        }
        self.due[kind] -= 1.0;
        if sampled < kernel.launch().blocks() {
            self.steps.push(Step::of(Sampled::new(kernel, sampled)));
        } else {
            self.steps.push(Step::of(kernel));
        }
    }
}
