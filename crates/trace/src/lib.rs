//! Warp-level streams: what each warp of a kernel executes, and which addresses it touches.
//!
//! A [`Kernel`] hands out the [instructions](Inst) of its warps a piece at a time. There are two kinds. A
//! [generated](pattern) kernel is a small description that makes each piece when it is asked for, so that a
//! billion instructions need no file. A traced kernel reads a file and keeps only the blocks that are being executed:
//! the [text](accel) that Accel-Sim's tracer writes, plain or compressed with xz, or our own [packed] format.

#![forbid(unsafe_code)]

pub mod accel;
mod application;
mod error;
mod files;
mod inst;
mod kernel;
mod opcode;
mod opcodes;
pub mod packed;
pub mod pattern;
mod pending;
pub mod sass;

pub use application::{Application, MakeKernel, Step};
pub use error::{Error, Problem};
pub use files::{is_kernel, open_kernel, write_kernel, write_kernel_to};
pub use inst::{Addresses, Code, Inst, NO_REGISTER, Op, WARP_LANES};
use kernel::check_launch;
pub use kernel::{At, Item, Kernel, Launch, MAX_BLOCK_THREADS};
