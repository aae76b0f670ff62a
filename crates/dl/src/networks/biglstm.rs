//! BigLSTM: a language model of two LSTM layers of 8192 cells, each projected to 1024 values.
//!
//! The paper states neither vocabulary nor sequence length; `docs/notes/case-study.md` explains
//! these choices.

use crate::{Layer, NetworkInfo, Op, PAPER_MEAN_RATIO, Shape, graph::Graph};

/// Entry in the table of networks.
pub(super) const INFO: NetworkInfo = NetworkInfo {
    name: "biglstm",
    title: "BigLSTM",
    label: "BigLSTM",
    unit: "words",
    paper_bytes: 2_710_000_000,
    paper_ratio: PAPER_MEAN_RATIO,
    layers: Some(layers),
    record: include_str!("../../recorded/biglstm.json"),
};

/// Words per sequence, unrolled as a whole.
const STEPS: u64 = 70;
/// Words of the vocabulary.
pub(crate) const WORDS: u64 = 33_278;

fn layers() -> Vec<Layer> {
    let mut net = Graph::new(Shape::new(1, STEPS, 1));
    net.embedding("embedding", WORDS, 1024);
    net.lstm("lstm1", 8192, 1024).lstm("lstm2", 8192, 1024);
    net.linear("softmax", WORDS).same("loss", Op::Softmax);
    net.finish()
}
