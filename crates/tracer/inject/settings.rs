//! Settings from the command, in environment variables.

use std::{env, ffi::CString, path::PathBuf};

/// The launches to trace, and the output.
pub(crate) struct Settings {
    /// The Sanitizer library.
    pub(crate) sanitizer: CString,
    /// The compiled patches.
    pub(crate) patches: CString,
    /// A folder for modules and launches.
    pub(crate) out: PathBuf,
    /// A part of the kernel's mangled name; empty for every kernel.
    pub(crate) kernel: String,
    /// Matching launches to skip first.
    pub(crate) skip: u64,
    /// Launches to trace after these.
    pub(crate) count: u64,
    /// Thread blocks to trace, from the first on.
    pub(crate) blocks: u32,
    /// Device memory for the records of one launch, in bytes.
    pub(crate) room: u64,
}

impl Settings {
    pub(crate) fn from_environment() -> Result<Self, String> {
        let text = |name: &str| env::var(name).map_err(|_| format!("{name} is not set"));
        let number = |name: &str| -> Result<u64, String> {
            text(name)?.parse().map_err(|_| format!("{name} must be a whole number"))
        };
        let path = |name: &str| CString::new(text(name)?).map_err(|_| format!("{name} holds a zero byte"));
        Ok(Self {
            sanitizer: path("BUDDY_TRACE_SANITIZER")?,
            patches: path("BUDDY_TRACE_PATCHES")?,
            out: PathBuf::from(text("BUDDY_TRACE_OUT")?),
            kernel: text("BUDDY_TRACE_KERNEL").unwrap_or_default(),
            skip: number("BUDDY_TRACE_SKIP")?,
            count: number("BUDDY_TRACE_COUNT")?,
            blocks: u32::try_from(number("BUDDY_TRACE_BLOCKS")?).unwrap_or(u32::MAX),
            room: number("BUDDY_TRACE_ROOM")?,
        })
    }
}
