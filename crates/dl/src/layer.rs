//! One layer of a network: what it does, from which shape to which, and how many weights it has.

/// The shape of one sample's values: an image, or a sequence as `channels` features at `height` steps.
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
    /// The shape of these channels, rows and columns.
    pub const fn new(channels: u64, height: u64, width: u64) -> Self {
        Self { channels, height, width }
    }

    /// How many values there are.
    pub fn elements(self) -> u64 {
        self.channels * self.pixels()
    }

    /// How many values a channel has.
    pub fn pixels(self) -> u64 {
        self.height * self.width
    }
}

/// What a layer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// Is given: an image, or the words of a sequence.
    Input,
    /// Convolves with square filters.
    Conv {
        /// Rows and columns of a filter.
        kernel: u64,
        /// Pixels from one output to the next.
        stride: u64,
        /// Zeros around the image.
        pad: u64,
        /// Groups of channels that do not see each other.
        groups: u64,
        /// Whether a bias is added.
        bias: bool,
    },
    /// Takes the largest value or the mean of square windows; the last window may hang over the edge.
    Pool {
        /// Rows and columns of a window.
        kernel: u64,
        /// Pixels from one window to the next.
        stride: u64,
        /// Zeros around the image.
        pad: u64,
        /// The mean rather than the largest.
        mean: bool,
    },
    /// Normalises each channel over the batch, then scales and shifts it.
    Norm,
    /// Replaces negative values by zero.
    Relu,
    /// Divides by the activity of five neighbouring channels.
    Lrn,
    /// Zeroes values at random.
    Dropout,
    /// Puts the channels of its inputs one after the other.
    Concat,
    /// Adds its two inputs.
    Add,
    /// A matrix product with all inputs of a step.
    Linear {
        /// Whether a bias is added.
        bias: bool,
    },
    /// A row of a table for each word.
    Embedding {
        /// Rows of the table.
        words: u64,
    },
    /// A recurrent layer of `hidden` cells whose output is projected to fewer values.
    Lstm {
        /// Cells of the recurrent layer, before the projection.
        hidden: u64,
    },
    /// Probabilities, and the loss.
    Softmax,
}

/// A layer in its network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// Its name, unique in the network.
    pub name: String,
    /// What it computes, with its own dimensions.
    pub op: Op,
    /// The layers whose outputs it reads, by their number.
    pub inputs: Vec<usize>,
    /// Shape of its first input.
    pub input: Shape,
    /// Shape of its output.
    pub output: Shape,
}

impl Layer {
    /// How many weights it learns, biases among them.
    pub fn weights(&self) -> u64 {
        let (from, to) = (self.input.channels, self.output.channels);
        match self.op {
            Op::Conv { kernel, groups, bias, .. } => {
                to * (from / groups) * kernel * kernel + u64::from(bias) * to
            }
            Op::Norm => 2 * to,
            Op::Linear { bias } => self.linear_inputs() * to + u64::from(bias) * to,
            Op::Embedding { words } => words * to,
            // Four gates of each cell see the step's input and the last output; each has a bias.
            Op::Lstm { hidden } => 4 * hidden * (from + to + 1) + hidden * to,
            _ => 0,
        }
    }

    /// Values that one output of a matrix product is made of: the whole image, or one step of a sequence.
    pub fn linear_inputs(&self) -> u64 {
        self.input.elements() / self.output.pixels()
    }

    /// Multiply-adds of its forward pass for one sample, in convolutions and matrix products.
    pub fn multiply_adds(&self) -> u64 {
        let (from, to) = (self.input.channels, self.output.channels);
        match self.op {
            Op::Conv { kernel, groups, .. } => self.output.elements() * (from / groups) * kernel * kernel,
            Op::Linear { .. } => self.linear_inputs() * self.output.elements(),
            Op::Lstm { hidden } => self.output.height * hidden * (4 * (from + to) + to),
            _ => 0,
        }
    }

    /// Values of one sample that it keeps for its backward pass, besides its input and its output.
    pub fn kept(&self) -> u64 {
        match self.op {
            // The scale of each value.
            Op::Lrn => self.output.elements(),
            // Four gates, the cell, its tangent and the unprojected output, at each step.
            Op::Lstm { hidden } => 7 * hidden * self.output.height,
            _ => 0,
        }
    }
}
