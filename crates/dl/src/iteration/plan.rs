//! Kernels in order, each with the share of it that is run.

use buddy_trace::{
    Kernel, Launch, Step,
    pattern::{Array, Pool, Rows, Sampled, Stream, Tiled},
};

/// Blocks that a sample keeps at least, so that every multiprocessor has some.
const LEAST_BLOCKS: u64 = 128;
/// Elements of a block of a kernel that streams: eight for each of 256 threads.
const BLOCK_ELEMENTS: u64 = 2048;

/// The kernels of an iteration.
pub(super) struct Plan {
    /// The share of each kernel that is run.
    pub(super) share: f64,
    pub(super) steps: Vec<Step>,
    /// Warp instructions of all kernels, whole.
    pub(super) instructions: u64,
}

impl Plan {
    pub(super) fn new(share: f64) -> Self {
        Self { share, steps: Vec::new(), instructions: 0 }
    }

    /// A product. Where a sample of blocks would leave multiprocessors without any, its loops are thinned instead.
    pub(super) fn tiled(&mut self, kernel: Tiled) {
        self.instructions += kernel.instructions();
        let kept = self.kept(&kernel);
        let thinner = self.share * kernel.blocks() as f64 / kept as f64;
        self.push(kernel.thinned(thinner), kept);
    }

    pub(super) fn pool(&mut self, kernel: Pool) {
        self.instructions += kernel.instructions();
        let kept = self.kept(&kernel);
        self.push(kernel, kept);
    }

    pub(super) fn rows(&mut self, kernel: Rows) {
        self.instructions += kernel.instructions();
        let kept = self.kept(&kernel);
        self.push(kernel, kept);
    }

    /// A kernel that reads and writes whole arrays in order.
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
        let kept = self.kept(&kernel);
        self.push(kernel, kept);
    }

    fn kept(&self, kernel: &impl Kernel) -> u64 {
        let blocks = kernel.launch().blocks();
        ((blocks as f64 * self.share).ceil() as u64).max(LEAST_BLOCKS).min(blocks)
    }

    fn push(&mut self, kernel: impl Kernel + Clone + Send + Sync + 'static, kept: u64) {
        if kept < kernel.launch().blocks() {
            self.steps.push(Step::of(Sampled::new(kernel, kept)));
        } else {
            self.steps.push(Step::of(kernel));
        }
    }
}
