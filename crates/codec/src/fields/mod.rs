//! Codecs that turn an entry's words into small numbers, and pack those in fields (`docs/format.md`, "fields").
//!
//! Each learns of its allocation how words become small: as places in a table of frequent values ([`Table`]), as
//! differences at a stride ([`Stride`]), as counts of a unit ([`Scaled`]). The packing is the same for all: widths are
//! fixed for each [form](forms), so that a decoder knows from four bits where every field lies, and a few numbers that
//! are too large for their fields go to the end.

mod block;
mod forms;
mod hash;
mod index;
mod scaled;
mod stride;
mod table;
mod words;

pub use scaled::Scaled;
pub use stride::Stride;
pub use table::Table;

#[cfg(test)]
mod tests;
