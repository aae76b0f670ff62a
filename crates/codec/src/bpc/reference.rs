//! Reference implementation of BPC, following `docs/reference/format.md` line by line.

use buddy_core::{Entry, words32};

use crate::{
    Error,
    bits::{BitCount, BitReader, BitSink, fits_signed, sign_extend},
    codec::BitCodec,
};

/// Planes of a 33-bit difference.
pub(super) const PLANES: usize = 33;
/// A plane of ones: one bit per difference.
pub(super) const ONES: u32 = 0x7fff_ffff;
/// The longest stream: every plane uncompressed.
pub(super) const MAX_BITS: u32 = 33 + 33 * 32;

/// Error for a bit index without a difference.
pub(super) const BAD_INDEX: &str = "a bit index past the last difference";
/// Error for a run of zero planes that is too long.
pub(super) const BAD_RUN: &str = "a run of zero planes past plane 0";

/// Reference implementation of [`Bpc`](super::Bpc).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reference;

impl BitCodec for Reference {
    fn max_stream_bits(&self) -> u32 {
        MAX_BITS
    }

    fn write(&self, entry: &Entry, sink: &mut impl BitSink) {
        let words = words32(entry);
        write_base(words[0], sink);
        write_planes(&delta_planes(&words), sink);
    }

    fn read(&self, reader: &mut BitReader) -> Result<Entry, Error> {
        let base = read_base(reader)?;
        let planes = read_planes(reader)?;
        Ok(rebuild(base, &planes))
    }
}

/// Returns `DBP[j]`, whose bit i is bit j of difference i; `DBP[33]` is zero.
fn delta_planes(words: &[u32; 32]) -> [u32; PLANES + 1] {
    let mut planes = [0; PLANES + 1];
    for (i, pair) in words.windows(2).enumerate() {
        let delta = i64::from(pair[1] as i32) - i64::from(pair[0] as i32);
        for (j, plane) in planes[..PLANES].iter_mut().enumerate() {
            *plane |= ((delta >> j & 1) as u32) << i;
        }
    }
    planes
}

/// Returns the bits that [`write_base`] writes.
#[inline(always)]
pub(super) fn base_bits(base: u32) -> u32 {
    let mut count = BitCount::default();
    write_base(base, &mut count);
    count.0
}

#[inline(always)]
pub(super) fn write_base(base: u32, sink: &mut impl BitSink) {
    if base == 0 {
        sink.put(0b000, 3);
        return;
    }
    for (code, bits) in [(0b001, 4), (0b010, 8), (0b011, 16)] {
        if fits_signed(base, bits) {
            sink.put(code, 3);
            return sink.put(u64::from(base) & ((1 << bits) - 1), bits);
        }
    }
    sink.put(1 << 32 | u64::from(base), 33);
}

fn write_planes(dbp: &[u32; PLANES + 1], sink: &mut impl BitSink) {
    let dbx = |j: usize| dbp[j] ^ dbp[j + 1];
    let mut left = PLANES;
    while left > 0 {
        let j = left - 1;
        let run = (0..left).rev().take_while(|&k| dbx(k) == 0).count();
        match (run, dbx(j)) {
            (0, _) if dbp[j] == 0 => sink.put(0b00001, 5),
            (0, ONES) => sink.put(0b00000, 5),
            (0, x) if x.is_power_of_two() => sink.put(0b00011 << 5 | u64::from(x.trailing_zeros()), 10),
            (0, x) if x >> x.trailing_zeros() == 0b11 => {
                sink.put(0b00010 << 5 | u64::from(x.trailing_zeros()), 10)
            }
            (0, x) => sink.put(1 << 31 | u64::from(x), 32),
            (1, _) => sink.put(0b001, 3),
            (_, _) => sink.put(0b01 << 5 | (run as u64 - 2), 7),
        }
        left -= run.max(1);
    }
}

#[inline(always)]
pub(super) fn read_base(reader: &mut BitReader) -> Result<u32, Error> {
    if reader.bit()? {
        return Ok(reader.take(32)? as u32);
    }
    match reader.take(2)? {
        0 => Ok(0),
        1 => Ok(sign_extend(reader.take(4)?, 4)),
        2 => Ok(sign_extend(reader.take(8)?, 8)),
        _ => Ok(sign_extend(reader.take(16)?, 16)),
    }
}

/// Reads `DBP`, from plane 32 down.
fn read_planes(reader: &mut BitReader) -> Result<[u32; PLANES + 1], Error> {
    let mut dbp = [0; PLANES + 1];
    let mut left = PLANES;
    while left > 0 {
        let (at, above) = (reader.at(), dbp[left]);
        let invalid = |what| Error::Invalid { at, what };
        let mut run = 1;
        let plane = if reader.bit()? {
            above ^ reader.take(31)? as u32
        } else if reader.bit()? {
            run = reader.take(5)? as usize + 2;
            above
        } else if reader.bit()? {
            above
        } else {
            match reader.take(2)? {
                0 => above ^ ONES,
                1 => 0,
                code => {
                    let index = reader.take(5)? as u32;
                    let pattern = if code == 3 { 0b1u64 } else { 0b11 } << index;
                    if pattern > u64::from(ONES) {
                        return Err(invalid(BAD_INDEX));
                    }
                    above ^ pattern as u32
                }
            }
        };
        if run > left {
            return Err(invalid(BAD_RUN));
        }
        dbp[left - run..left].fill(plane);
        left -= run;
    }
    Ok(dbp)
}

/// Adds up the differences. Plane 32 holds only signs, which sums modulo 2^32 do not need.
fn rebuild(base: u32, dbp: &[u32; PLANES + 1]) -> Entry {
    let mut entry = [0; 128];
    let mut word = base;
    for (i, bytes) in entry.as_chunks_mut().0.iter_mut().enumerate() {
        *bytes = word.to_le_bytes();
        let delta = (0..32).fold(0, |delta, j| delta | (dbp[j] >> i & 1) << j);
        word = word.wrapping_add(delta);
    }
    entry
}
