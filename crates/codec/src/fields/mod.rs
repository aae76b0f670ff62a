//! Codecs that turn an entry's words into small numbers, and pack those in fields (`docs/reference/format.md`, "fields").
//!
//! Each learns of its allocation how words become small: as places in a table of frequent values ([`Table`]), as
//! differences at a stride ([`Stride`]), as counts of a unit ([`Scaled`]). The packing is the same for these: widths are
//! fixed for each [form](forms), so that a decoder knows from four bits where every field lies, and a few numbers that
//! are too large for their fields go to the end. [`Prefix`] packs differences, and [`Rank`]
//! places in a table, otherwise: a code says how long each is.

mod block;
mod code;
mod forms;
mod hash;
mod index;
mod prefix;
mod rank;
mod scaled;
mod steps;
mod stride;
mod table;
mod values;
mod words;

pub use prefix::Prefix;
pub use rank::Rank;
pub use scaled::Scaled;
pub use stride::Stride;
pub use table::Table;

#[cfg(test)]
mod tests;
