//! Traces of unmodified CUDA programs.
//!
//! A library that the program loads when CUDA starts ([`INJECTED`]) patches its kernels through
//! NVIDIA's Sanitizer API: every memory access, barrier, shuffle and call of a warp leaves an event
//! with its lanes and addresses ([`Launch`]). The instructions between two events follow from the
//! machine code ([`sass`]): most often one path fits ([`Flow`]); otherwise the hardware's
//! instruction counts decide ([`Counts`]).

#![forbid(unsafe_code)]

mod counts;
mod edges;
mod error;
mod flow;
pub mod raw;
mod run;
pub mod sass;
mod text;
pub mod tools;
mod warp;

pub use counts::{Counts, parse as parse_counts};
pub use error::Error;
pub use flow::{Flow, Goal};
pub use raw::Launch;
pub use run::{Request, Traced, trace};
pub use text::{Resources, Written, write};
pub use warp::{Executed, assemble};

/// The library that a traced program loads.
pub const INJECTED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libbuddy_tracer.so"));

/// CUDA source of the callbacks that patch kernels. Compile it for the GPU that runs the program,
/// with `--ptxas-options=--compile-as-tools-patch`.
pub const PATCHES: &str = include_str!("../kernels/patches.cu");
