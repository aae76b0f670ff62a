//! Arrays in files, memory-mapped: raw dumps, `.npy`, `.npz`, `.safetensors`, HDF5, NetCDF, GGUF,
//! PyTorch, Zarr.
//!
//! [`open`] reads the headers of a file and returns its [`Array`]s; their bytes are views of the
//! mapping, so a file may be larger than memory. Every reader takes hostile input: it returns an
//! [`Error`] of one line, never panics, and allocates in proportion to the headers that the file
//! really holds.
//!
//! A [`Run`] is a directory of snapshots of a program's memory; a [`RunWriter`] writes one
//! (`docs/reference/snapshots.md`).
//!
//! This crate holds unsafe code, in `source.rs`, because mapping a file needs it. If another
//! program truncates a file while it is mapped, the system ends the process.

mod array;
mod atomic;
mod claim;
mod columns;
mod dumps;
mod error;
mod folder;
mod gguf;
mod hdf5;
mod magic;
mod netcdf;
mod npy;
mod npz;
mod pattern;
mod pickle;
mod run;
mod safetensors;
mod scratch;
mod source;
mod torch;
mod writer;
mod zarr;

pub use array::{Array, Contents, Format, open, open_contents, open_raw, read_contents, read_memory};
pub use atomic::{discard_abandoned, discard_partial, is_partial, write_atomic};
pub use buddy_record::Skipped;
pub use claim::Claim;
pub use error::Error;
pub use folder::{array_files, array_files_and_left};
pub use pattern::Pattern;
pub use run::Run;
pub use scratch::inflate_limit;
pub use writer::RunWriter;
