//! Traces of small kernels without a GPU: executes their machine code, as disassembled by nvdisasm,
//! on the CPU.
//!
//! Integers, predicates, addresses and single precision are computed for every lane; shared memory
//! and the kernel's arrays hold its stores. Unknown values (arrays without content, double and half
//! precision, tensor cores, opcodes not in `exec`) are tracked through registers. A kernel whose
//! branches, masks or addresses depend on one is refused with the offending instruction; no path is
//! guessed.
//!
//! Two assumptions. Diverged lanes reconverge at the lowest PC of any of them, where compilers
//! place the convergence of branches and loops; each group issues the `BSYNC` before it on arrival.
//! Warps of a block run in order from barrier to barrier, and blocks one after another, so atomics
//! return values of that order. Only kernels whose paths do not depend on it are traced faithfully.

mod access;
mod bits;
mod decode;
mod exec;
mod float;
mod kernel;
mod lanes;
mod memory;
mod operand;
mod parse;
mod state;

pub use kernel::{Argument, SassKernel};
pub use memory::{Array, Content};
pub use parse::Program;
