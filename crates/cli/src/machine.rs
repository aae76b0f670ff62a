//! What help says of GPUs and links: the names come from `specs/`.

use buddy_core::spec::{Gpu, Link};

/// Help of an option that takes a GPU.
pub(crate) fn gpu_help(what: &str) -> String {
    format!("{what}: {}, or a TOML file", names(Gpu::names()))
}

/// Help of an option that takes a link.
pub(crate) fn link_help(what: &str) -> String {
    format!("{what}: {}, any number of GB/s, or a TOML file", names(Link::names()))
}

fn names(names: impl Iterator<Item = &'static str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}
