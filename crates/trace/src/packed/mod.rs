//! Our packed trace format, `.warps`: well under a byte per instruction.
//!
//! docs/reference/traces.md is the specification. A kernel executes few distinct instructions in
//! few distinct orders, and its warps access memory alike. A file stores each instruction once,
//! each order of them (a path) once, and only the residuals of predicted addresses. [`Reader`] is a
//! [`Kernel`](crate::Kernel) that decodes a file; [`write()`] encodes any kernel.

mod columns;
mod frame;
mod path;
mod predictor;
mod reader;
mod table;
mod varint;
mod writer;

pub use reader::Reader;
pub use writer::{Written, write, write_file};

/// Magic bytes of a file.
const MAGIC: [u8; 8] = *b"BUDDYWRP";
/// Format version.
const VERSION: u32 = 1;
/// Largest block in instructions; every four listed addresses count as one more.
const MAX_BLOCK: u64 = 1 << 24;
