//! Packed models on disk: safetensors files whose bf16 matrices are frozen buffers
//! (`docs/reference/format.md`), everything else unchanged.
//!
//! [`pack`] takes a file, or a folder with all shards of a model; [`unpack`] restores the original
//! files, byte for byte. A packed file is a safetensors file too: a frozen matrix is a tensor of
//! bytes under the matrix's name, and the metadata hold the original header. Files are mapped and
//! processed in pieces, so that a model may be larger than memory. They are written atomically, and
//! finished files are not packed again. Every tensor and every file has a checksum, which
//! [`unpack`], [`verify`] and [`verify_shards`] compare.

#![forbid(unsafe_code)]

mod check;
mod checksum;
mod content;
mod error;
mod file;
mod folder;
mod header;
mod manifest;
mod matrix;

pub use check::{Checked, verify, verify_shards};
pub use error::Error;
pub use file::{Sizes, pack_file, unpack_file, verify_file};
pub use folder::{Job, Report, pack, pack_tight, unpack};
pub use header::Plan;

/// Receives the number of bytes of the plain files that are done.
pub type Progress<'a> = &'a (dyn Fn(u64) + Sync);
