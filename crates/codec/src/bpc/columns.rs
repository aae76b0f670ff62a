//! What all 33 planes look like, without making them.
//!
//! A plane is a column of bits over the 31 differences. Whether a column is empty, full, has one bit or two
//! neighbouring ones can be counted for 32 columns at once, in the 32 bits of a word: `any |= x` finds the
//! columns that are not empty, `two |= any & x` those with a second bit, and so on. So the size of an entry
//! takes some ten operations per difference and no transposition.

use buddy_core::{Entry, words32};

/// Differences in an entry.
const DELTAS: usize = 31;
/// Rows that are counted side by side; one vector of 32-bit lanes.
const LANES: usize = 8;

/// Properties of the 33 planes, a bit for each: bit j is about plane j.
#[derive(Debug, Clone, Copy)]
pub(super) struct Columns {
    /// The first word.
    pub(super) base: u32,
    /// `DBX` is not zero.
    pub(super) any: u64,
    /// `DBX` is not zero, `DBP` is.
    pub(super) dbp_zero: u64,
    /// `DBX` is all ones.
    pub(super) ones: u64,
    /// `DBX` has a single one.
    pub(super) single: u64,
    /// `DBX` has two ones, side by side.
    pub(super) pair: u64,
}

/// The differences of an entry and what their planes are made of.
pub(super) struct Deltas {
    /// The first word.
    pub(super) base: u32,
    /// Bits 0 to 31 of each difference; the 32nd is zero.
    pub(super) low: [u32; 32],
    /// Bit i of word j is bit i of `DBX[j]`... turned on its side: word i holds bits 0 to 31 of the `DBX` planes
    /// at difference i.
    pub(super) dbx: [u32; 32],
    /// 1 where the difference is negative: bit 32 of it.
    pub(super) sign: [u32; 32],
}

#[inline(always)]
pub(super) fn deltas(entry: &Entry) -> Deltas {
    let words = words32(entry);
    let mut next = [0; 32];
    next[..DELTAS].copy_from_slice(&words[1..]);
    next[DELTAS] = words[DELTAS];
    let mut deltas = Deltas { base: words[0], low: [0; 32], dbx: [0; 32], sign: [0; 32] };
    for i in 0..32 {
        let low = next[i].wrapping_sub(words[i]);
        let sign = u32::from((next[i] as i32) < words[i] as i32);
        deltas.low[i] = low;
        deltas.sign[i] = sign;
        deltas.dbx[i] = low ^ (low >> 1 | sign << 31);
    }
    deltas
}

impl Columns {
    #[inline(always)]
    pub(super) fn of(deltas: &Deltas) -> Self {
        let low = Count::over(&deltas.dbx);
        let delta_any = deltas.low.iter().fold(0, |any, x| any | x);
        let mut ones = deltas.dbx[0];
        for x in &deltas.dbx[..DELTAS] {
            ones &= x;
        }
        let top = Top::over(&deltas.sign);
        Self {
            base: deltas.base,
            any: u64::from(low.one) | top.any << 32,
            dbp_zero: u64::from(low.one & !delta_any),
            ones: u64::from(ones) | top.ones << 32,
            single: u64::from(low.one & !low.two) | top.single << 32,
            pair: u64::from(low.two & !low.three & low.adjacent) | top.pair << 32,
        }
    }

    /// Bits of the planes' codes, by the table of `docs/format.md`.
    #[inline(always)]
    pub(super) fn plane_bits(&self) -> u32 {
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

/// How many ones the columns of some rows have: at least one, two, three; and whether two are neighbours.
#[derive(Clone, Copy, Default)]
struct Count {
    one: u32,
    two: u32,
    three: u32,
    adjacent: u32,
}

impl Count {
    #[inline(always)]
    fn over(rows: &[u32; 32]) -> Self {
        let mut next = [0; 32];
        next[..DELTAS].copy_from_slice(&rows[1..]);
        let (mut one, mut two, mut three, mut adjacent) = ([0; LANES], [0; LANES], [0; LANES], [0; LANES]);
        for (rows, next) in rows.as_chunks::<LANES>().0.iter().zip(next.as_chunks::<LANES>().0) {
            for lane in 0..LANES {
                three[lane] |= two[lane] & rows[lane];
                two[lane] |= one[lane] & rows[lane];
                one[lane] |= rows[lane];
                adjacent[lane] |= rows[lane] & next[lane];
            }
        }
        let lane = |l| Self { one: one[l], two: two[l], three: three[l], adjacent: adjacent[l] };
        let quarter = |l| lane(l).plus(lane(l + 4));
        quarter(0).plus(quarter(2)).plus(quarter(1).plus(quarter(3)))
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        Self {
            one: self.one | other.one,
            two: self.two | other.two | self.one & other.one,
            three: self.three | other.three | self.two & other.one | self.one & other.two,
            adjacent: self.adjacent | other.adjacent,
        }
    }
}

/// The same for the one column of signs, plane 32.
struct Top {
    any: u64,
    ones: u64,
    single: u64,
    pair: u64,
}

impl Top {
    #[inline(always)]
    fn over(sign: &[u32; 32]) -> Self {
        let (mut count, mut pairs) = (0, 0);
        for i in 0..DELTAS {
            count += sign[i];
            pairs += sign[i] & sign[i + 1];
        }
        Self {
            any: u64::from(count > 0),
            ones: u64::from(count == DELTAS as u32),
            single: u64::from(count == 1),
            pair: u64::from(count == 2 && pairs == 1),
        }
    }
}
