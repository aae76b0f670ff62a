//! Errors of the case study.

use crate::Network;

/// An unknown name, or an unusable file or record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An unknown network.
    #[error("there is no network '{0}'; there are {list}", list = Network::names().join(", "))]
    Network(String),
    /// A GPU without training figures.
    #[error("{0} has no [training] table; {list} have one", list = crate::spec::names().join(", "))]
    NoTraining(String),
    /// A GPU without the rates of its tensor cores.
    #[error("{0} has no [tensor] table, so the time of a language model is unknown; {list} have one", list = crate::llm::Machine::names().join(", "))]
    NoTensor(String),
    /// An unknown or unusable shape of a language model.
    #[error("{0}")]
    Shape(String),
    /// An unknown GPU, or an unusable specification file.
    #[error(transparent)]
    Spec(#[from] buddy_record::spec::SpecError),
}
