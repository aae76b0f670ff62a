//! `libbuddy.so`: Buddy Compression on a real GPU, for C and languages that call C.
//! `include/buddy.h` documents every function; `docs/reference/c-interface.md` introduces them.
//!
//! Functions use the calling thread's current context and keep its state with it. They return a
//! code; the message is kept for the thread. A panic becomes a code as well.

mod codec;
mod csr;
mod error;
mod external;
mod frozen;
mod functions;
mod kv;
mod matrix;
mod state;
mod types;

pub use csr::*;
pub use external::*;
/// The base of `libbuddy_targets.so`; not for other programs.
#[doc(hidden)]
pub mod internals {
    pub use crate::{
        error::{Failure, guard},
        functions::some,
        state::{change, exists, gpu, keep},
    };
}

pub use frozen::*;
pub use functions::*;
pub use kv::*;
pub use matrix::*;
pub use types::*;
