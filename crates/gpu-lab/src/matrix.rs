//! The layouts of a sparse matrix's values and columns (`buddy_cuda`'s `matrix.cuh`), as kernel
//! arguments.

use crate::lab::device_struct;

/// Elements of an entry.
pub(crate) const MATRIX_ENTRY: u32 = 32;

device_struct!(
    /// Doubles that are exactly floats.
    NarrowValues { narrow: u64, kinds: u64, others: u64 }
);
device_struct!(
    /// A few distinct doubles: indices into a table of 256.
    TableValues { places: u64, table: u64 }
);
device_struct!(
    /// Columns within 2^24 of the entry's smallest.
    OffsetColumns { low: u64, high: u64, bases: u64, others: u64 }
);
