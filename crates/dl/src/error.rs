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
    /// An unknown GPU, or an unusable specification file.
    #[error(transparent)]
    Spec(#[from] buddy_record::spec::SpecError),
}
