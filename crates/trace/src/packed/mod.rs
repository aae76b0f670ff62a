//! Our own trace format, `.warps`: what a kernel's warps execute in well under a byte an instruction.
//!
//! docs/reference/traces.md is the specification. A kernel executes few different instructions in few different orders, and its
//! warps walk memory alike. So a file holds each instruction once, each order of them (a path) once, and of
//! the addresses only where a warp does not walk as the warp before it. [`Reader`] is a
//! [`Kernel`](crate::Kernel) that puts the pieces together again; [`write()`] takes any kernel apart.

mod columns;
mod frame;
mod path;
mod reader;
mod table;
mod varint;
mod walk;
mod writer;

pub use reader::Reader;
pub use writer::{Written, write, write_file};

/// What a file begins with.
const MAGIC: [u8; 8] = *b"BUDDYWRP";
/// The version that is written and read.
const VERSION: u32 = 1;
/// The most instructions of one block, where each four listed addresses count as one more.
const MAX_BLOCK: u64 = 1 << 24;
