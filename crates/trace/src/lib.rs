//! Warp-level instruction and address streams of kernels.
//!
//! A [`Kernel`] supplies the [instructions](Inst) of its warps in chunks. A [generated](pattern)
//! kernel makes each chunk on demand from a small description, so a billion instructions need no
//! file. A traced kernel reads a file and holds only the blocks in execution: the [text](accel) of
//! Accel-Sim's tracer, plain, compressed with xz or in its `.tracez`, or our [packed] format.

#![forbid(unsafe_code)]

pub mod accel;
mod application;
mod block_queue;
mod error;
mod files;
mod inst;
mod kernel;
mod opcode;
mod opcodes;
pub mod packed;
pub mod pattern;
pub mod sass;

pub use application::{Application, MakeKernel, Step};
pub use error::{Error, Problem};
pub use files::{is_kernel, open_kernel, write_kernel, write_kernel_to};
pub use inst::{Addresses, Code, Inst, NO_REGISTER, Op, WARP_LANES};
use kernel::check_launch;
pub use kernel::{At, Item, Kernel, Launch, MAX_BLOCK_THREADS};
