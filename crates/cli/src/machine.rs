//! Help texts of GPUs and links, with the names in `specs/`.

use buddy_record::spec::{Gpu, Link};

/// Returns the help of an option that takes a GPU.
pub(crate) fn gpu_help(what: &str) -> String {
    format!("{what}: {}, or a TOML file", names(Gpu::names()))
}

/// Returns the help of an option that takes a link.
pub(crate) fn link_help(what: &str) -> String {
    format!("{what}: {}, any number of GB/s, or a TOML file", names(Link::names()))
}

fn names(names: impl Iterator<Item = &'static str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}
