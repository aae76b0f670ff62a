//! Why something of the case study cannot be had.

use crate::Network;

/// What is wrong with a name, a file or a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A network that does not exist.
    #[error("there is no network '{0}'; there are {list}", list = Network::ALL.join(", "))]
    Network(String),
    /// A GPU that has no figures for training.
    #[error("{0} has no [training] table; {list} have one", list = crate::spec::names().join(", "))]
    NoTraining(String),
    /// A GPU that does not exist, or whose file cannot be used.
    #[error(transparent)]
    Spec(#[from] buddy_core::spec::SpecError),
}
