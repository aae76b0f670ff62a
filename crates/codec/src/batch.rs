//! Batch operations on slices of entries: the codec is dispatched once and the loop is vectorised.
//!
//! Packed entries occupy 128-byte slots at fixed positions, as in a Buddy memory. `pack_all_parallel`
//! splits the slices over rayon's threads.

use buddy_core::{Entry, Nibble};
use rayon::prelude::*;

use crate::{
    Codec, EntryCodec, Error,
    codec::{pack, unpack},
    kinds::each,
    simd::vectorised,
};

/// Entries per parallel task: 128 KiB.
const PIECE: usize = 1024;

/// A decode error of one entry in a batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("entry {entry}: {source}")]
pub struct BatchError {
    /// Index of the entry in the batch.
    pub entry: usize,
    /// The decode error.
    pub source: Error,
}

impl Codec {
    /// Computes the stream size in bits of every entry.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn sizes(&self, entries: &[Entry], bits: &mut [u32]) {
        assert_eq!(entries.len(), bits.len(), "one size for each entry");
        each!(self, codec => vectorised(
            #[inline(always)]
            || {
                for (entry, bits) in entries.iter().zip(bits) {
                    *bits = codec.size_bits(entry);
                }
            }
        ));
    }

    /// Applies [`pack`](Self::pack) to every entry. Writes its nibble and the bytes at the start of
    /// its slot; the rest of the slot is unchanged.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn pack_all(&self, entries: &[Entry], nibbles: &mut [Nibble], slots: &mut [Entry]) {
        assert_eq!((entries.len(), entries.len()), (nibbles.len(), slots.len()), "one slot for each entry");
        each!(self, codec => vectorised(
            #[inline(always)]
            || {
                for ((entry, nibble), slot) in entries.iter().zip(nibbles).zip(slots) {
                    *nibble = pack(codec, entry, slot);
                }
            }
        ));
    }

    /// Applies [`unpack`](Self::unpack) to every slot.
    ///
    /// # Errors
    /// The first entry that does not decode; the entries before it are valid.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn unpack_all(
        &self,
        nibbles: &[Nibble],
        slots: &[Entry],
        entries: &mut [Entry],
    ) -> Result<(), BatchError> {
        assert_eq!((entries.len(), entries.len()), (nibbles.len(), slots.len()), "one slot for each entry");
        each!(self, codec => vectorised(
            #[inline(always)]
            || {
                for (i, ((entry, nibble), slot)) in entries.iter_mut().zip(nibbles).zip(slots).enumerate() {
                    *entry = unpack(codec, *nibble, slot).map_err(|source| BatchError { entry: i, source })?;
                }
                Ok(())
            }
        ))
    }

    /// Runs [`pack_all`](Self::pack_all) on rayon's threads.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn pack_all_parallel(&self, entries: &[Entry], nibbles: &mut [Nibble], slots: &mut [Entry]) {
        assert_eq!((entries.len(), entries.len()), (nibbles.len(), slots.len()), "one slot for each entry");
        let pieces =
            entries.par_chunks(PIECE).zip(nibbles.par_chunks_mut(PIECE)).zip(slots.par_chunks_mut(PIECE));
        pieces.for_each(|((entries, nibbles), slots)| self.pack_all(entries, nibbles, slots));
    }
}
