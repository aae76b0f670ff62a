//! Codecs that map an entry's words to small numbers and bit-pack them (`docs/reference/format.md`,
//! "fields").
//!
//! Each is trained per allocation: [`Table`] uses indices into a dictionary of frequent values,
//! [`Stride`] residuals of a stride predictor, [`Scaled`] integer multiples of a unit. These share
//! the packing: field widths are fixed per [form](forms), so four bits locate every field, and a
//! few numbers too large for their fields are exceptions at the end. [`Prefix`] and [`Rank`] pack
//! residuals and dictionary indices with prefix codes of their lengths instead.

mod block;
mod code;
mod forms;
mod hash;
mod index;
mod predictor;
mod prefix;
mod rank;
mod scaled;
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
