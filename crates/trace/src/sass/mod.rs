//! Traces of small kernels without a GPU: their machine code, as nvdisasm shows it, executed on the CPU.
//!
//! Integers, predicates, addresses and single precision are computed for every lane; shared memory and the arrays that a
//! kernel is given hold what it stores there. What is not known (arrays whose content was not given, double and half precision,
//! tensor cores, an opcode that is not in `exec`) is marked as such in every register that it reaches. A kernel
//! whose branches, masks or addresses depend on it is refused, with the instruction that asked: no path is guessed.
//!
//! Two things are assumed. Lanes that part meet again at the lowest address that any of them stands at, which is where
//! compilers put the convergence of branches and loops; each group issues the `BSYNC` before it when it gets there. Warps of a block run from barrier to barrier, in order, and blocks one
//! after the other, so that atomics return what that order gives; only kernels whose paths do not depend on it are traced
//! truly.

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
