//! A column of a tight matrix: sixteen rows of 64 values. A lane has sixteen values of each of two
//! rows, r and r + 8: pairs 4 i + quarter of an entry's 32 pairs.

use buddy_core::{ENTRY_BYTES, Entry, ZERO_ENTRY};

use super::{
    COLUMN_BYTES, LANES,
    header::{TILE_ROWS, invalid},
    rows::RowByte,
};
use crate::Error;

/// Upper exponents of the window below the four usual ones.
pub(super) const BELOW: usize = 3;
/// The word of a column with which codes begin; signs follow them.
const AT_CODES: usize = 256;

/// Returns the order of a row among the eight of its half of a tile.
fn slot(row: usize) -> usize {
    let row = row % 8;
    row & 4 | (row & 1) << 1 | row >> 1 & 1
}

/// Returns the place of a row's byte among a tile's.
pub(super) fn row_place(row: usize) -> usize {
    2 * slot(row) + row / 8
}

/// A column in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    /// Low bytes of the values of each half and lane.
    low: [[[u8; 16]; LANES]; 2],
    /// Two bits of each value's upper exponent, by lane.
    codes: [[u32; 2]; LANES],
    signs: [u32; LANES],
    /// Lanes with an extra word, by half.
    pub(super) flags: [u32; 2],
}

/// The extra words of a pair of columns.
#[derive(Debug, Default)]
pub(super) struct Pair {
    extra: Vec<u16>,
    exceptions: Vec<u32>,
}

impl Pair {
    /// Returns the words as they are stored.
    pub(super) fn words(&self) -> Vec<u16> {
        let halves = self.exceptions.iter().flat_map(|word| [*word as u16, (word >> 16) as u16]);
        self.extra.iter().copied().chain(halves).collect()
    }
}

/// Where the bits of value `b` of pair `i` of a half are, in the words of its lane.
struct Place {
    word: usize,
    code: usize,
    extra: usize,
    sign: usize,
}

impl Place {
    fn of(half: usize, i: usize, b: usize) -> Self {
        let (byte, word, at) = (2 * half + b, i / 4, i % 4);
        Self {
            word,
            code: 8 * byte + 2 * at,
            extra: 8 * b + 2 * at + word,
            sign: (8 * byte + 2 * at + 5 - word) % 32,
        }
    }
}

/// Returns the index in an entry of value `b` of pair `i` of a quarter.
fn value_at(quarter: usize, i: usize, b: usize) -> usize {
    2 * (4 * i + quarter) + b
}

impl Column {
    /// Packs a column; appends its extra words and exceptions to those of its pair.
    pub(super) fn pack(
        entries: &[Entry; TILE_ROWS],
        rows: &[RowByte; TILE_ROWS],
        odd: usize,
        pair: &mut Pair,
    ) -> Self {
        let mut out =
            Self { low: [[[0; 16]; LANES]; 2], codes: [[0; 2]; LANES], signs: [0; LANES], flags: [0; 2] };
        for half in 0..2 {
            for lane in 0..LANES {
                let row = slot(lane / 4) + 8 * half;
                let extra = out.pack_lane(&entries[row], rows[row], half, lane, odd, pair);
                if extra != 0 {
                    out.flags[half] |= 1 << lane;
                    pair.extra.push(extra);
                }
            }
        }
        out
    }

    /// Packs sixteen values; returns their extra word, 0 if they need none.
    fn pack_lane(
        &mut self,
        entry: &Entry,
        row: RowByte,
        half: usize,
        lane: usize,
        odd: usize,
        pair: &mut Pair,
    ) -> u16 {
        let mut extra = 0;
        for i in 0..8 {
            for b in 0..2 {
                let place = Place::of(half, i, b);
                let at = 2 * value_at(lane % 4, i, b);
                let bits = u16::from_le_bytes([entry[at], entry[at + 1]]).wrapping_add(row.raise());
                let [low, high] = bits.to_le_bytes();
                self.low[half][lane][2 * i + b] = low;
                let code = u32::from(high & 0x7f).wrapping_sub(row.lowest().into());
                if code > 7 {
                    let at = (odd * LANES + lane) << 13 | i << 10 | (2 * half + b) << 8;
                    pair.exceptions.push(at as u32 | u32::from(high));
                }
                // An exception's other bits are those of a usual value.
                let code = if code > 7 { BELOW as u32 } else { code };
                self.codes[lane][place.word] |= (code & 3) << place.code;
                self.signs[lane] |= u32::from(high >> 7) << place.sign;
                extra |= u16::from(code >> 2 == u32::from(code & 3 == 3)) << place.extra;
            }
        }
        extra
    }

    /// Returns the stored bytes, without flags.
    pub(super) fn bytes(&self) -> impl Iterator<Item = u8> {
        let words = self.codes.as_flattened().iter().chain(&self.signs);
        let low = self.low.as_flattened().as_flattened().iter().copied();
        low.chain(words.flat_map(|word| word.to_le_bytes()))
    }
}

/// The stored bytes of a column, and its flags.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stored<'a> {
    pub(super) bytes: &'a [u8; COLUMN_BYTES],
    pub(super) flags: [u32; 2],
}

impl Stored<'_> {
    fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes.as_chunks().0[at])
    }

    /// Unpacks the entry of a row. `other` are the flags of the pair's other column, `words` the
    /// pair's extra words.
    pub(super) fn unpack(
        &self,
        row: usize,
        byte: RowByte,
        odd: usize,
        other: [u32; 2],
        words: &[[u8; 2]],
    ) -> Result<Entry, Error> {
        let ones = |flags: [u32; 2]| (flags[0].count_ones() + flags[1].count_ones()) as usize;
        let own = if odd == 1 { ones(other) } else { 0 };
        let (extra, exceptions) = words
            .split_at_checked(ones(self.flags) + ones(other))
            .ok_or_else(|| invalid("more flags than extra words"))?;
        let (exceptions, rest) = exceptions.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(invalid("half an exception"));
        }
        let (half, mut out) = (row / 8, ZERO_ENTRY);
        for quarter in 0..4 {
            let lane = 4 * slot(row) + quarter;
            let before = (1u32 << lane) - 1;
            let rank = if half == 0 { 0 } else { self.flags[0].count_ones() }
                + (self.flags[half] & before).count_ones();
            let flagged = self.flags[half] >> lane & 1 == 1;
            let word = if flagged { u16::from_le_bytes(extra[own + rank as usize]) } else { 0 };
            let low = &self.bytes[(half * LANES + lane) * 16..][..16];
            let mut high = self.high_bytes(half, lane, word, byte);
            for &[first, last] in exceptions {
                let exception =
                    u32::from(u16::from_le_bytes(last)) << 16 | u32::from(u16::from_le_bytes(first));
                if exception >> 13 & 63 == (odd * LANES + lane) as u32 && exception >> 9 & 1 == half as u32 {
                    high[(exception >> 10 & 7) as usize][(exception >> 8 & 1) as usize] = exception as u8;
                }
            }
            for (i, pair) in high.iter().enumerate() {
                for (b, &high) in pair.iter().enumerate() {
                    let bits = u16::from_le_bytes([low[2 * i + b], high]);
                    let at = 2 * value_at(quarter, i, b);
                    out[at..at + 2].copy_from_slice(&bits.wrapping_sub(byte.raise()).to_le_bytes());
                }
            }
        }
        Ok(out)
    }

    /// Returns the high bytes of a lane's values of a half.
    fn high_bytes(&self, half: usize, lane: usize, extra: u16, byte: RowByte) -> [[u8; 2]; 8] {
        let codes = [self.word(AT_CODES + 2 * lane), self.word(AT_CODES + 2 * lane + 1)];
        let signs = self.word(AT_CODES + 2 * LANES + lane);
        std::array::from_fn(|i| {
            std::array::from_fn(|b| {
                let place = Place::of(half, i, b);
                let code = (codes[place.word] >> place.code & 3) as u8;
                let third = u8::from(code != 3) ^ (extra >> place.extra & 1) as u8;
                let sign = (signs >> place.sign & 1) as u8;
                sign << 7 | (byte.lowest() + (code | third << 2))
            })
        })
    }
}

const _: () = assert!(COLUMN_BYTES == TILE_ROWS * ENTRY_BYTES / 2 + 4 * 3 * LANES);
