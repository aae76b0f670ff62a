//! x
mod error;
mod source;
pub use error::Error;
pub use source::{Params, Source, codecs, constants};
