//! Bit-Plane Compression, the paper's choice (`docs/reference/format.md`, "BPC").
//!
//! The 31 differences of neighbouring 32-bit words, as 33-bit numbers, are transposed into 33
//! bit-planes. Each plane is XORed with the one above it. Smooth data leaves zero planes, which
//! cost almost nothing.
//!
//! `reference` follows the format page line by line; this codec produces the same bits several
//! times as fast. `columns` classifies all planes at once, so sizes need no planes; encoding
//! transposes with vector instructions.

use buddy_core::{Entry, Layout};

use crate::{
    EntryCodec, Error, Stream,
    bits::{BitReader, BitSink, BitWriter},
    simd::transpose,
};

pub(crate) mod best;
mod columns;
pub(crate) mod reference;

use columns::{Columns, Deltas, deltas};
use reference::{ONES, PLANES, read_base, write_base};

/// Bit-Plane Compression over 32-bit words, as the paper uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Bpc;

impl EntryCodec for Bpc {
    fn max_bits(&self) -> u32 {
        reference::MAX_BITS
    }

    #[inline(always)]
    fn size_bits(&self, entry: &Entry) -> u32 {
        Columns::of(&deltas(entry)).bits()
    }

    #[inline(always)]
    fn encode(&self, entry: &Entry, stream: &mut Stream) {
        let deltas = deltas(entry);
        encode(&deltas, &Columns::of(&deltas), stream);
    }

    #[inline(always)]
    fn encode_within(&self, entry: &Entry, limit: u32, stream: &mut Stream) -> bool {
        let deltas = deltas(entry);
        let columns = Columns::of(&deltas);
        let fits = columns.bits() <= limit;
        if fits {
            encode(&deltas, &columns, stream);
        }
        fits
    }

    #[inline(always)]
    fn decode(&self, stream: &[u8], layout: Layout) -> Result<Entry, Error> {
        if layout != Layout::A {
            return Err(Error::Layout(layout));
        }
        read(&mut BitReader::new(stream))
    }
}

#[inline(always)]
fn encode(deltas: &Deltas, columns: &Columns, stream: &mut Stream) {
    let mut writer = BitWriter::new(stream);
    write(deltas, columns, &mut writer);
    writer.finish();
}

#[inline(always)]
fn write(deltas: &Deltas, columns: &Columns, sink: &mut impl BitSink) {
    let mut dbx = [deltas.signs; PLANES];
    dbx[..32].copy_from_slice(&transpose(&deltas.dbx));
    write_base(columns.base, sink);
    write_planes(columns, &dbx, sink);
}

#[inline(always)]
fn read(reader: &mut BitReader) -> Result<Entry, Error> {
    let base = read_base(reader)?;
    let planes = read_planes(reader)?;
    Ok(rebuild(base, &transpose(planes.first_chunk().expect("33 planes"))))
}

#[inline(always)]
fn write_planes(columns: &Columns, dbx: &[u32; PLANES], sink: &mut impl BitSink) {
    let mut left = PLANES;
    while left > 0 {
        let run = (columns.any << (64 - left)).leading_zeros().min(left as u32) as usize;
        let (j, bit) = (left - 1, 1 << (left - 1));
        let index = || u64::from(dbx[j].trailing_zeros());
        match run {
            0 if columns.dbp_zero & bit != 0 => sink.put(0b00001, 5),
            0 if columns.ones & bit != 0 => sink.put(0b00000, 5),
            0 if columns.single & bit != 0 => sink.put(0b00011 << 5 | index(), 10),
            0 if columns.pair & bit != 0 => sink.put(0b00010 << 5 | index(), 10),
            0 => sink.put(1 << 31 | u64::from(dbx[j]), 32),
            1 => sink.put(0b001, 3),
            _ => sink.put(0b01 << 5 | (run as u64 - 2), 7),
        }
        left -= run.max(1);
    }
}

/// Reads `DBP`, from plane 32 down. One window of the stream holds any code completely.
#[inline(always)]
fn read_planes(reader: &mut BitReader) -> Result<[u32; PLANES + 1], Error> {
    let mut dbp = [0; PLANES + 1];
    let mut left = PLANES;
    let mut above = 0;
    while left > 0 {
        let (at, window) = (reader.at(), reader.window());
        let field = |from: u32, count: u32| ((window << from) >> (64 - count)) as u32;
        let (plane, bits, run) = match window.leading_zeros() {
            0 => (above ^ field(1, 31), 32, 1),
            1 => (above, 7, field(2, 5) as usize + 2),
            2 => (above, 3, 1),
            3 => {
                let pattern = if field(4, 1) == 1 { 0b1u64 } else { 0b11 } << field(5, 5);
                if pattern > u64::from(ONES) {
                    reader.skip(10)?;
                    return Err(Error::Invalid { at, what: reference::BAD_INDEX });
                }
                (above ^ pattern as u32, 10, 1)
            }
            4 => (0, 5, 1),
            _ => (above ^ ONES, 5, 1),
        };
        reader.skip(bits)?;
        if run > left {
            return Err(Error::Invalid { at, what: reference::BAD_RUN });
        }
        dbp[left - run..left].fill(plane);
        above = plane;
        left -= run;
    }
    Ok(dbp)
}

/// Adds up the differences, modulo 2^32.
#[inline(always)]
fn rebuild(base: u32, deltas: &[u32; 32]) -> Entry {
    let mut entry = [0; 128];
    let mut word = base;
    for (bytes, delta) in entry.as_chunks_mut().0.iter_mut().zip(deltas) {
        *bytes = word.to_le_bytes();
        word = word.wrapping_add(*delta);
    }
    entry
}

#[cfg(test)]
mod tests;
