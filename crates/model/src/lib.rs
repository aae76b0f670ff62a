//! Models on disk, smaller: safetensors files whose bf16 matrices are frozen buffers
//! (`docs/reference/format.md`), everything else as it was.
//!
//! [`pack`] takes a file, or a folder with all shards of a model; [`unpack`] gives the original
//! files back, byte for byte. A packed file is a safetensors file too: a frozen matrix is a tensor
//! of bytes under the matrix's name, and the metadata keep the original header. Files are mapped
//! and worked on in pieces, so that a model may be larger than memory; they appear whole or not at
//! all, and what is there already is not packed again.

#![forbid(unsafe_code)]

mod error;
mod file;
mod folder;
mod header;
mod manifest;
mod matrix;

pub use error::Error;
pub use file::{Sizes, pack_file, unpack_file, verify_file};
pub use folder::{Job, Report, pack, unpack};
pub use header::Plan;

/// Is told how many bytes of the plain files are done.
pub type Progress<'a> = &'a (dyn Fn(u64) + Sync);
