//! One layer of a network: operation, shapes and weights.

/// Shape of one sample: an image, or a sequence of `height` steps with `channels` features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Channels of an image, features of a step.
    pub channels: u64,
    /// Rows of an image, steps of a sequence.
    pub height: u64,
    /// Columns of an image, 1 for a sequence.
    pub width: u64,
}

impl Shape {
    /// Creates a shape.
    pub const fn new(channels: u64, height: u64, width: u64) -> Self {
        Self { channels, height, width }
    }

    /// Returns the number of values.
    pub fn elements(self) -> u64 {
        self.channels * self.pixels()
    }

    /// Returns the values per channel.
    pub fn pixels(self) -> u64 {
        self.height * self.width
    }
}

/// Operation of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// The input: an image, or the words of a sequence.
    Input,
    /// Convolution with square filters.
    Conv {
        /// Rows and columns of a filter.
        kernel: u64,
        /// Pixels between outputs.
        stride: u64,
        /// Zero padding in pixels.
        pad: u64,
        /// Groups of channels (grouped convolution).
        groups: u64,
        /// True if a bias is added.
        bias: bool,
    },
    /// Max or mean pooling over square windows; the last window may exceed the edge.
    Pool {
        /// Rows and columns of a window.
        kernel: u64,
        /// Pixels between windows.
        stride: u64,
        /// Zero padding in pixels.
        pad: u64,
        /// Mean instead of max.
        mean: bool,
    },
    /// Batch normalisation with scale and shift.
    Norm,
    /// Rectifier (ReLU).
    Relu,
    /// Local response normalisation over five channels.
    Lrn,
    /// Dropout.
    Dropout,
    /// Concatenation of its inputs' channels.
    Concat,
    /// Sum of its two inputs.
    Add,
    /// Fully connected layer over all inputs of a step.
    Linear {
        /// True if a bias is added.
        bias: bool,
    },
    /// Embedding: a table row per word.
    Embedding {
        /// Rows of the table.
        words: u64,
    },
    /// LSTM layer of `hidden` cells with projected output.
    Lstm {
        /// Cells, before the projection.
        hidden: u64,
    },
    /// Softmax with loss.
    Softmax,
}

/// A layer in its network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// Name, unique in the network.
    pub name: String,
    /// Operation with its dimensions.
    pub op: Op,
    /// Indices of the layers that it reads.
    pub inputs: Vec<usize>,
    /// Shape of its first input.
    pub input: Shape,
    /// Shape of its output.
    pub output: Shape,
}

impl Layer {
    /// Returns the number of trainable weights, biases included.
    pub fn weights(&self) -> u64 {
        let (from, to) = (self.input.channels, self.output.channels);
        match self.op {
            Op::Conv { kernel, groups, bias, .. } => {
                to * (from / groups) * kernel * kernel + u64::from(bias) * to
            }
            Op::Norm => 2 * to,
            Op::Linear { bias } => self.linear_inputs() * to + u64::from(bias) * to,
            Op::Embedding { words } => words * to,
            // Four gates per cell read the step's input and the last output, each with a bias.
            Op::Lstm { hidden } => 4 * hidden * (from + to + 1) + hidden * to,
            _ => 0,
        }
    }

    /// Returns the inputs of one output of a matrix product: the whole image, or one step of a
    /// sequence.
    pub fn linear_inputs(&self) -> u64 {
        self.input.elements() / self.output.pixels()
    }

    /// Returns the multiply-adds of its forward pass per sample, in convolutions and matrix
    /// products.
    pub fn multiply_adds(&self) -> u64 {
        let (from, to) = (self.input.channels, self.output.channels);
        match self.op {
            Op::Conv { kernel, groups, .. } => self.output.elements() * (from / groups) * kernel * kernel,
            Op::Linear { .. } => self.linear_inputs() * self.output.elements(),
            Op::Lstm { hidden } => self.output.height * hidden * (4 * (from + to) + to),
            _ => 0,
        }
    }

    /// Returns the values per sample saved for the backward pass, besides input and output.
    pub fn saved(&self) -> u64 {
        match self.op {
            // Scale of each value.
            Op::Lrn => self.output.elements(),
            // Four gates, cell, its tanh and the unprojected output, per step.
            Op::Lstm { hidden } => 7 * hidden * self.output.height,
            _ => 0,
        }
    }
}
