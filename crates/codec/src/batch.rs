//! Whole slices of entries at once: the codec is looked up once, the loop is compiled for the machine's vectors.
//!
//! What is packed lies in slots of 128 bytes, one for each entry at a fixed place, as in a Buddy memory. The
//! `parallel` twins cut the slices into pieces for rayon's threads.

use buddy_core::{Entry, Nibble};
use rayon::prelude::*;

use crate::{
    Codec, EntryCodec, Error,
    codec::{pack, unpack},
    kinds::each,
    simd::vectorised,
};

/// Entries that one thread takes at a time: 128 KiB.
const PIECE: usize = 1024;

/// An entry of a batch that did not decode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("entry {entry}: {source}")]
pub struct BatchError {
    /// Which entry of the batch, counted from 0.
    pub entry: usize,
    /// What is wrong with it.
    pub source: Error,
}

impl Codec {
    /// Bits of every entry's stream.
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

    /// [`pack`](Self::pack) of every entry: its nibble, and its bytes at the start of its slot. The rest of a slot
    /// is left as it was.
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

    /// [`unpack`](Self::unpack) of every slot.
    ///
    /// # Errors
    /// The first entry that does not decode; those before it are in `entries`.
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

    /// [`sizes`](Self::sizes) on rayon's threads.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn sizes_parallel(&self, entries: &[Entry], bits: &mut [u32]) {
        assert_eq!(entries.len(), bits.len(), "one size for each entry");
        let pieces = entries.par_chunks(PIECE).zip(bits.par_chunks_mut(PIECE));
        pieces.for_each(|(entries, bits)| self.sizes(entries, bits));
    }

    /// [`pack_all`](Self::pack_all) on rayon's threads.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn pack_all_parallel(&self, entries: &[Entry], nibbles: &mut [Nibble], slots: &mut [Entry]) {
        assert_eq!((entries.len(), entries.len()), (nibbles.len(), slots.len()), "one slot for each entry");
        let pieces =
            entries.par_chunks(PIECE).zip(nibbles.par_chunks_mut(PIECE)).zip(slots.par_chunks_mut(PIECE));
        pieces.for_each(|((entries, nibbles), slots)| self.pack_all(entries, nibbles, slots));
    }

    /// [`unpack_all`](Self::unpack_all) on rayon's threads.
    ///
    /// # Errors
    /// One entry that does not decode.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn unpack_all_parallel(
        &self,
        nibbles: &[Nibble],
        slots: &[Entry],
        entries: &mut [Entry],
    ) -> Result<(), BatchError> {
        assert_eq!((entries.len(), entries.len()), (nibbles.len(), slots.len()), "one slot for each entry");
        let pieces =
            nibbles.par_chunks(PIECE).zip(slots.par_chunks(PIECE)).zip(entries.par_chunks_mut(PIECE));
        pieces.enumerate().try_for_each(|(piece, ((nibbles, slots), entries))| {
            let result = self.unpack_all(nibbles, slots, entries);
            result.map_err(|error| BatchError { entry: piece * PIECE + error.entry, ..error })
        })
    }
}
