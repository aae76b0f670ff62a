//! An entry as equal lanes of 8, 16, 32 or 64 bits, in `u64`s so that one loop serves every width.

use buddy_core::{ENTRY_BYTES, Entry, ZERO_ENTRY};

/// Lanes at the narrowest width; wider lanes leave the rest unused.
pub(crate) const MAX_LANES: usize = 128;

/// Returns the number of `W`-bit lanes in an entry.
pub(crate) const fn count<const W: usize>() -> usize {
    8 * ENTRY_BYTES / W
}

/// Returns the mask of a lane.
pub(crate) const fn mask<const W: usize>() -> u64 {
    u64::MAX >> (64 - W)
}

/// Splits an entry into lanes.
#[inline(always)]
pub(crate) fn split<const W: usize>(entry: &Entry) -> [u64; MAX_LANES] {
    let mut lanes = [0; MAX_LANES];
    for (i, lane) in lanes[..count::<W>()].iter_mut().enumerate() {
        let mut bytes = [0; 8];
        bytes[..W / 8].copy_from_slice(&entry[i * W / 8..(i + 1) * W / 8]);
        *lane = u64::from_le_bytes(bytes);
    }
    lanes
}

/// Joins lanes into an entry.
#[inline(always)]
pub(crate) fn join<const W: usize>(lanes: &[u64; MAX_LANES]) -> Entry {
    let mut entry = ZERO_ENTRY;
    for (i, lane) in lanes[..count::<W>()].iter().enumerate() {
        entry[i * W / 8..(i + 1) * W / 8].copy_from_slice(&lane.to_le_bytes()[..W / 8]);
    }
    entry
}

/// Returns the differences of neighbouring lanes, modulo 2^W; one fewer than lanes.
#[inline(always)]
pub(crate) fn deltas<const W: usize>(lanes: &[u64; MAX_LANES]) -> [u64; MAX_LANES] {
    let mut deltas = [0; MAX_LANES];
    for i in 0..count::<W>() - 1 {
        deltas[i] = lanes[i + 1].wrapping_sub(lanes[i]) & mask::<W>();
    }
    deltas
}

/// Returns the lanes with this base and these differences.
#[inline(always)]
pub(crate) fn sums<const W: usize>(base: u64, deltas: &[u64; MAX_LANES]) -> [u64; MAX_LANES] {
    let mut lanes = [0; MAX_LANES];
    lanes[0] = base;
    for i in 1..count::<W>() {
        lanes[i] = lanes[i - 1].wrapping_add(deltas[i - 1]) & mask::<W>();
    }
    lanes
}

/// Returns the bitmap of non-zero lanes among the first 64.
#[inline(always)]
pub(crate) fn nonzero(lanes: &[u64; MAX_LANES]) -> u64 {
    let mut bits = [0; 8];
    for (byte, lanes) in bits.iter_mut().zip(lanes.as_chunks::<8>().0) {
        *byte = lanes.iter().rev().fold(0, |bits, &lane| bits << 1 | u8::from(lane != 0));
    }
    u64::from_le_bytes(bits)
}

/// Returns the positions of the set bits, lowest first.
#[inline(always)]
pub(crate) fn ones(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let i = bits.trailing_zeros() as usize;
        bits &= bits.wrapping_sub(1);
        (i < 64).then_some(i)
    })
}
