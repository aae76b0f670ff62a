//! `libbuddy.so`: Buddy Compression on a real GPU, for C and whatever calls C. `include/buddy.h`
//! documents every function; `docs/reference/c-interface.md` leads through them.
//!
//! Functions work in the context that is current on the calling thread and keep what belongs to a
//! context with it. They return a code; the message behind it stays with the thread. A panic
//! becomes a code as well.

mod codec;
mod error;
mod frozen;
mod functions;
mod given;
mod kv;
mod matrix;
mod state;
mod types;

pub use frozen::*;
pub use functions::*;
pub use given::*;
pub use kv::*;
pub use matrix::*;
pub use types::*;
