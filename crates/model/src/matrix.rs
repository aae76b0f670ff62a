//! Packs a matrix as a frozen buffer, in pieces on all threads, and reads it back.

use std::{fs::File, ops::Range, os::unix::fs::FileExt};

use buddy_codec::{Bf16, Codec, Frozen, FrozenHeader, FrozenPiece, Tight, TightHeader, tighten};
use buddy_core::{ENTRY_BYTES, Entry, Target};
use buddy_snapshot::Array;
use rayon::prelude::*;

use crate::{Error, Progress};

/// Approximate plain bytes of a piece: enough for a thread, and within its cache.
const PIECE: usize = 1 << 20;
/// Pieces between two writes of overflow.
const BATCH: usize = 32;
/// Entries sampled over the matrix to choose the window.
const SAMPLE: usize = 1 << 14;

/// The share of the plain bytes that frozen weights take, as a fraction: tight ones take less.
const FROZEN_SHARE: (u64, u64) = (754, 1000);

/// Layout of the matrices of a packed model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// As frozen buffers.
    Frozen,
    /// As tight matrices, where they are smaller.
    Tight,
}

/// Returns the codec for a matrix, with a window chosen from a sample.
pub(crate) fn codec(data: &[u8]) -> Codec {
    let entries: &[Entry] = data.as_chunks().0;
    let every = entries.len().div_ceil(SAMPLE).max(1);
    let sample: Vec<Entry> = entries.iter().step_by(every).copied().collect();
    Codec::Bf16(Bf16::train(&sample))
}

/// Returns the ranges of data that are packed and read at a time.
fn pieces(header: &FrozenHeader) -> Vec<Range<usize>> {
    let step = header.step() as usize * ENTRY_BYTES;
    let piece = PIECE.div_ceil(step).max(1) * step;
    let bytes = header.bytes as usize;
    (0..bytes).step_by(piece).map(|start| start..bytes.min(start + piece)).collect()
}

/// The parts of a matrix that are written last; the fixed places are written at once.
#[derive(Default)]
struct Rest {
    /// Checksums of the fixed places.
    chunks: Vec<u8>,
    nibbles: Vec<u8>,
    index: Vec<u8>,
    overflow: Vec<u8>,
}

impl Rest {
    /// Adds a piece and the checksums of its places, and counts its sectors.
    fn add(&mut self, piece: &FrozenPiece, chunks: &[u8], header: &mut FrozenHeader) -> Option<()> {
        self.chunks.extend_from_slice(chunks);
        self.nibbles.extend_from_slice(&piece.nibbles);
        self.overflow.extend_from_slice(&piece.overflow);
        for &sectors in &piece.sectors {
            self.index.extend_from_slice(&header.sectors.to_le_bytes());
            header.sectors = header.sectors.checked_add(sectors)?;
        }
        Some(())
    }

    /// Writes everything but the fixed places; returns the checksum of the matrix.
    fn write(mut self, out: &File, at: u64, header: &FrozenHeader) -> Result<u128, Error> {
        self.index.extend_from_slice(&header.sectors.to_le_bytes());
        let (parts, mut tail) = (header.parts(), self.nibbles);
        for (start, part) in [(parts.index.start, &self.index), (parts.overflow.start, &self.overflow)] {
            tail.resize((start - parts.nibbles.start) as usize, 0);
            tail.extend_from_slice(part);
        }
        tail.resize((parts.total - parts.nibbles.start) as usize, 0);
        self.chunks.extend(header.tail_checksums(&tail));
        let head = header.encode_sealed(&self.chunks)?;
        out.write_all_at(&head, at).map_err(Error::Write)?;
        out.write_all_at(&tail, at + parts.nibbles.start).map_err(Error::Write)?;
        Ok(u128::from_le_bytes(*head.last_chunk().expect("a header of 128 bytes")))
    }
}

/// Writes a matrix with rows of `row` entries to a file of zeros, from `at` on, and returns its
/// bytes and checksum. Returns `None` if the bytes are not fewer than the plain ones.
pub(crate) fn write(
    out: &File,
    at: u64,
    array: &Array,
    (row, layout): (u32, Layout),
    progress: Progress<'_>,
) -> Result<Option<(u64, u128)>, Error> {
    let (data, target) = (array.bytes(), Target::X4Over3);
    if layout == Layout::Tight
        && let Some(written) = write_tight(out, at, data, row)?
    {
        progress(data.len() as u64);
        array.release(0..data.len());
        return Ok(Some(written));
    }
    let mut header = FrozenHeader { codec: codec(data), target, bytes: data.len() as u64, row, sectors: 0 };
    let (mut rest, device) = (Rest::default(), at + header.parts().device.start);
    for batch in pieces(&header).chunks(BATCH) {
        let packed = batch.par_iter().map(|range| {
            let piece = FrozenPiece::pack(&header.codec, target, row, &data[range.clone()])?;
            let places = (range.start / ENTRY_BYTES * target.device_bytes()) as u64;
            out.write_all_at(&piece.device, device + places).map_err(Error::Write)?;
            progress(range.len() as u64);
            let chunks = piece.checksums(target);
            Ok((FrozenPiece { device: Vec::new(), ..piece }, chunks))
        });
        for (piece, chunks) in packed.collect::<Result<Vec<_>, Error>>()? {
            if rest.add(&piece, &chunks, &mut header).is_none() {
                return Ok(None);
            }
        }
        array.release(batch[0].start..batch[batch.len() - 1].end);
        if header.parts().total >= header.bytes {
            return Ok(None);
        }
    }
    let checksum = rest.write(out, at, &header)?;
    Ok(Some((header.parts().total, checksum)))
}

/// Writes a tight matrix. Returns `None` if a frozen one would be smaller.
fn write_tight(out: &File, at: u64, data: &[u8], row: u32) -> Result<Option<(u64, u128)>, Error> {
    let packed = tighten(row, data)?;
    if packed.len() as u64 * FROZEN_SHARE.1 >= data.len() as u64 * FROZEN_SHARE.0 {
        return Ok(None);
    }
    out.write_all_at(&packed, at).map_err(Error::Write)?;
    Ok(Tight::open(&packed)?.checksum().map(|checksum| (packed.len() as u64, checksum)))
}

/// Checks a packed matrix and returns its checksum, if it has one.
pub(crate) fn checksum(packed: &[u8]) -> Result<Option<u128>, Error> {
    if TightHeader::is_tight(packed) {
        let tight = Tight::open(packed)?;
        tight.check().map_err(|_| Error::Damaged)?;
        return Ok(tight.checksum());
    }
    let frozen = Frozen::open(packed)?;
    frozen.check().map_err(|_| Error::Damaged)?;
    Ok(frozen.checksum())
}

/// Reads a tight matrix in pieces.
fn read_tight(
    packed: &Array,
    expected: u64,
    put: impl Fn(u64, &[u8]) -> Result<(), Error> + Sync,
) -> Result<(), Error> {
    let tight = Tight::open(packed.bytes())?;
    if tight.header().bytes != expected {
        let why = format!("it holds {} bytes where the original has {expected}", tight.header().bytes);
        return Err(crate::header::not_packed(why));
    }
    let mut buffer = vec![0; (PIECE * BATCH).min(expected as usize)];
    for start in (0..expected).step_by(PIECE * BATCH) {
        let bytes = buffer.len().min((expected - start) as usize);
        tight.read_entries(start / ENTRY_BYTES as u64, &mut buffer[..bytes])?;
        put(start, &buffer[..bytes])?;
    }
    packed.release(0..packed.bytes().len());
    Ok(())
}

/// Reads a packed matrix in pieces; passes each to `put` with its offset in the plain data.
pub(crate) fn read(
    packed: &Array,
    expected: u64,
    put: impl Fn(u64, &[u8]) -> Result<(), Error> + Sync,
) -> Result<(), Error> {
    if TightHeader::is_tight(packed.bytes()) {
        return read_tight(packed, expected, put);
    }
    let frozen = Frozen::open(packed.bytes())?;
    if frozen.header().bytes != expected {
        let why = format!("it holds {} bytes where the original has {expected}", frozen.header().bytes);
        return Err(crate::header::not_packed(why));
    }
    for batch in pieces(frozen.header()).chunks(BATCH) {
        batch.par_iter().try_for_each_init(Vec::new, |buffer, range| {
            buffer.resize(range.len(), 0);
            frozen.read_piece((range.start / ENTRY_BYTES) as u64, buffer)?;
            put(range.start as u64, buffer)
        })?;
    }
    packed.release(0..packed.bytes().len());
    Ok(())
}
