//! An entry as equal lanes of 8, 16, 32 or 64 bits, each held in a `u64` so that one loop serves every width.

use buddy_core::{ENTRY_BYTES, Entry, ZERO_ENTRY};

/// Lanes of the narrowest width; wider ones leave the rest unused.
pub(crate) const MOST: usize = 128;

/// How many lanes of `W` bits an entry has.
pub(crate) const fn count<const W: usize>() -> usize {
    8 * ENTRY_BYTES / W
}

/// All bits of a lane.
pub(crate) const fn mask<const W: usize>() -> u64 {
    u64::MAX >> (64 - W)
}

/// The lanes of an entry.
#[inline(always)]
pub(crate) fn split<const W: usize>(entry: &Entry) -> [u64; MOST] {
    let mut lanes = [0; MOST];
    for (i, lane) in lanes[..count::<W>()].iter_mut().enumerate() {
        let mut bytes = [0; 8];
        bytes[..W / 8].copy_from_slice(&entry[i * W / 8..(i + 1) * W / 8]);
        *lane = u64::from_le_bytes(bytes);
    }
    lanes
}

/// The entry of some lanes.
#[inline(always)]
pub(crate) fn join<const W: usize>(lanes: &[u64; MOST]) -> Entry {
    let mut entry = ZERO_ENTRY;
    for (i, lane) in lanes[..count::<W>()].iter().enumerate() {
        entry[i * W / 8..(i + 1) * W / 8].copy_from_slice(&lane.to_le_bytes()[..W / 8]);
    }
    entry
}

/// Differences of neighbouring lanes, modulo 2^W; one fewer than lanes.
#[inline(always)]
pub(crate) fn deltas<const W: usize>(lanes: &[u64; MOST]) -> [u64; MOST] {
    let mut deltas = [0; MOST];
    for i in 0..count::<W>() - 1 {
        deltas[i] = lanes[i + 1].wrapping_sub(lanes[i]) & mask::<W>();
    }
    deltas
}

/// The lanes whose first is `base` and whose differences are `deltas`.
#[inline(always)]
pub(crate) fn sums<const W: usize>(base: u64, deltas: &[u64; MOST]) -> [u64; MOST] {
    let mut lanes = [0; MOST];
    lanes[0] = base;
    for i in 1..count::<W>() {
        lanes[i] = lanes[i - 1].wrapping_add(deltas[i - 1]) & mask::<W>();
    }
    lanes
}

/// Bit i is set where lane i of the first 64 is not zero.
#[inline(always)]
pub(crate) fn nonzero(lanes: &[u64; MOST]) -> u64 {
    let mut bits = [0; 8];
    for (byte, lanes) in bits.iter_mut().zip(lanes.as_chunks::<8>().0) {
        *byte = lanes.iter().rev().fold(0, |bits, &lane| bits << 1 | u8::from(lane != 0));
    }
    u64::from_le_bytes(bits)
}

/// The positions of the bits that are set, lowest first.
#[inline(always)]
pub(crate) fn ones(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let i = bits.trailing_zeros() as usize;
        bits &= bits.wrapping_sub(1);
        (i < 64).then_some(i)
    })
}
