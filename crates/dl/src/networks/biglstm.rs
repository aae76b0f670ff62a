//! BigLSTM: a language model of two LSTM layers of 8192 cells, each projected to 1024 values.
//!
//! The paper gives neither the vocabulary nor the length of a sequence. `docs/case-study.md` says why these.

use crate::{Layer, Op, Shape, graph::Graph};

/// Words of a sequence, which is unrolled as a whole.
const STEPS: u64 = 70;
/// Words of the vocabulary.
pub(crate) const WORDS: u64 = 33_278;

pub(super) fn layers() -> Vec<Layer> {
    let mut net = Graph::new(Shape::new(1, STEPS, 1));
    net.embedding("embedding", WORDS, 1024);
    net.lstm("lstm1", 8192, 1024).lstm("lstm2", 8192, 1024);
    net.linear("softmax", WORDS).same("loss", Op::Softmax);
    net.finish()
}
