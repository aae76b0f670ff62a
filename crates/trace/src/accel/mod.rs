//! The trace format of Accel-Sim's tracer, versions 1 to 6: text, plain or compressed with xz, or
//! Accel-Sim 2.0's `.tracez`.
//!
//! A folder holds `kernelslist.g`, the copies and kernels of a program in order, and one file per
//! kernel: header lines, then thread blocks with the instructions of their warps. [`Reader`] is a
//! [`Kernel`](crate::Kernel) that reads such a file block by block; [`write()`] writes one from any
//! kernel.

mod header;
mod line;
mod lines;
mod list;
mod reader;
mod tracez;
mod words;
mod writer;

pub(crate) use line::op_of;
pub use list::read_list;
pub use reader::Reader;
pub(crate) use writer::write_named;
pub use writer::{write, write_file, write_tracez};
