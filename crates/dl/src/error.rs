//! Why something of the case study cannot be had.

use crate::Network;

/// What is wrong with a name, a file or a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A network that does not exist.
    #[error("there is no network '{0}'; there are {list}", list = Network::ALL.join(", "))]
    Network(String),
    /// A GPU that has no figures for training.
    #[error("there is no GPU '{0}' for training; there are {list}", list = crate::spec::names().join(", "))]
    Gpu(String),
    /// A specification that is no TOML, has an unknown or missing field, or a value out of range.
    #[error("{file}: {why}")]
    Spec {
        /// The file or preset.
        file: String,
        /// What is wrong with it.
        why: String,
    },
}
