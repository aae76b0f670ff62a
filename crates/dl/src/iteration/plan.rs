//! Kernels in order, and which share of each is run.

use buddy_trace::{
    Kernel, Launch, Step,
    pattern::{Array, Pool, Rows, Sampled, Stream, Tiled},
};

/// Blocks that a sample of a kernel has at least: four for each multiprocessor of the paper's GPU, as many as run at
/// a time. With fewer, latencies would show that the whole kernel hides.
const LEAST_BLOCKS: u64 = 224;
/// Elements of a block of a kernel that streams: eight for each of 256 threads.
const BLOCK_ELEMENTS: u64 = 2048;

/// The kernels of an iteration.
pub(super) struct Plan {
    /// The share of the work that is run.
    pub(super) share: f64,
    pub(super) steps: Vec<Step>,
    /// Warp instructions of all kernels, whole.
    pub(super) instructions: u64,
    /// Kernels that are owed, in parts of one: products, and the others.
    due: [f64; 2],
}

impl Plan {
    pub(super) fn new(share: f64) -> Self {
        Self { share, steps: Vec::new(), instructions: 0, due: [0.5; 2] }
    }

    /// A product. A sample has a share of its blocks, or the least number of blocks and a share of their loops.
    pub(super) fn tiled(&mut self, kernel: Tiled) {
        let whole = kernel.instructions();
        self.instructions += whole;
        let kept = self.kept(&kernel);
        let part = kept as f64 / kernel.blocks() as f64;
        let sample = kernel.thinned((self.share / part).min(1.0));
        let owed = self.share * whole as f64 / (sample.instructions() as f64 * part);
        self.push(sample, kept, owed, 0);
    }

    pub(super) fn pool(&mut self, kernel: Pool) {
        self.instructions += kernel.instructions();
        self.other(kernel);
    }

    pub(super) fn rows(&mut self, kernel: Rows) {
        self.instructions += kernel.instructions();
        self.other(kernel);
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
        self.other(kernel);
    }

    fn other(&mut self, kernel: impl Kernel + Clone + Send + Sync + 'static) {
        let kept = self.kept(&kernel);
        let owed = self.share * kernel.launch().blocks() as f64 / kept as f64;
        self.push(kernel, kept, owed, 1);
    }

    fn kept(&self, kernel: &impl Kernel) -> u64 {
        let blocks = kernel.launch().blocks();
        ((blocks as f64 * self.share).ceil() as u64).max(LEAST_BLOCKS).min(blocks)
    }

    /// Runs `kept` blocks of a kernel, if it is its turn. A sample that is larger than the share wants, because a
    /// smaller one would say nothing, is owed only in part: it runs once in as many such kernels as make it whole.
    fn push(
        &mut self,
        kernel: impl Kernel + Clone + Send + Sync + 'static,
        kept: u64,
        owed: f64,
        kind: usize,
    ) {
        self.due[kind] += owed.min(1.0);
        if self.due[kind] < 1.0 {
            return;
        }
        self.due[kind] -= 1.0;
        if kept < kernel.launch().blocks() {
            self.steps.push(Step::of(Sampled::new(kernel, kept)));
        } else {
            self.steps.push(Step::of(kernel));
        }
    }
}
