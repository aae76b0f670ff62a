//! Classification of all 33 bit-planes without transposing.
//!
//! A plane is a column of bits over the 31 differences. Word-wide operations classify 32 columns at
//! once: `any |= x` finds the non-empty columns, `two |= any & x` those with a second bit, and so
//! on. The size of an entry thus takes about ten operations per difference and no transposition.

use buddy_core::{Entry, words32};

use super::reference::base_bits;
use crate::simd;

/// Differences per entry.
const DELTAS: usize = 31;

/// Properties of the 33 planes; bit j of each mask describes plane j.
#[derive(Debug, Clone, Copy)]
pub(super) struct Columns {
    /// The first word, base of the differences.
    pub(super) base: u32,
    /// `DBX` is not zero.
    pub(super) any: u64,
    /// `DBX` is not zero but `DBP` is.
    pub(super) dbp_zero: u64,
    /// `DBX` is all ones.
    pub(super) ones: u64,
    /// `DBX` has exactly one bit set.
    pub(super) single: u64,
    /// `DBX` has exactly two bits set, and they are adjacent.
    pub(super) pair: u64,
}

/// Differences of an entry and the bits of their planes.
pub(super) struct Deltas {
    /// The first word, base of the differences.
    pub(super) base: u32,
    /// Bits 0 to 31 of each difference; element 31 is zero.
    pub(super) low: [u32; 32],
    /// `DBX` planes 0 to 31 before transposition: word i holds their bits at difference i.
    pub(super) dbx: [u32; 32],
    /// Plane 32: bit i is set where difference i is negative.
    pub(super) signs: u32,
}

#[inline(always)]
pub(super) fn deltas(entry: &Entry) -> Deltas {
    let words = words32(entry);
    let mut next = [0; 32];
    next[..DELTAS].copy_from_slice(&words[1..]);
    next[DELTAS] = words[DELTAS];
    let (mut low, mut dbx, mut negative) = ([0; 32], [0; 32], [0; 32]);
    for i in 0..32 {
        low[i] = next[i].wrapping_sub(words[i]);
        negative[i] = u32::from((next[i] as i32) < words[i] as i32) << 31;
        dbx[i] = low[i] ^ (low[i] >> 1 | negative[i]);
    }
    Deltas { base: words[0], low, dbx, signs: simd::top_bits(&negative) }
}

impl Columns {
    #[inline(always)]
    pub(super) fn of(deltas: &Deltas) -> Self {
        let low = simd::count_columns(&deltas.dbx);
        let delta_any = deltas.low.iter().fold(0, |any, x| any | x);
        let ones = deltas.dbx[..DELTAS].iter().fold(u32::MAX, |ones, x| ones & x);
        let top = Top::over(deltas.signs);
        Self {
            base: deltas.base,
            any: u64::from(low.one) | top.any << 32,
            dbp_zero: u64::from(low.one & !delta_any),
            ones: u64::from(ones) | top.ones << 32,
            single: u64::from(low.one & !low.two) | top.single << 32,
            pair: u64::from(low.two & !low.three & low.adjacent) | top.pair << 32,
        }
    }

    /// Returns the bits of the whole stream.
    #[inline(always)]
    pub(super) fn bits(&self) -> u32 {
        base_bits(self.base) + self.plane_bits()
    }

    /// Returns the code bits of all planes, by the table in `docs/reference/format.md`.
    #[inline(always)]
    fn plane_bits(&self) -> u32 {
        let zero = !self.any & ((1 << 33) - 1);
        let starts = zero & !(zero << 1);
        let lone = starts & !(zero >> 1);
        let five = self.dbp_zero | self.ones;
        let ten = (self.single | self.pair) & !five;
        let raw = self.any & !(five | ten);
        7 * (starts & !lone).count_ones()
            + 3 * lone.count_ones()
            + 5 * five.count_ones()
            + 10 * ten.count_ones()
            + 32 * raw.count_ones()
    }
}

/// The same properties for plane 32, the signs.
struct Top {
    any: u64,
    ones: u64,
    single: u64,
    pair: u64,
}

impl Top {
    #[inline(always)]
    fn over(plane: u32) -> Self {
        let ones = plane.count_ones();
        Self {
            any: u64::from(plane != 0),
            ones: u64::from(ones == DELTAS as u32),
            single: u64::from(ones == 1),
            pair: u64::from(ones == 2 && plane & plane << 1 != 0),
        }
    }
}
