//! Which files are traces.

/// Whether a file of this name is one kernel's trace.
pub fn is_kernel(name: &str) -> bool {
    [".traceg", ".traceg.xz"].iter().any(|end| name.ends_with(end))
}
