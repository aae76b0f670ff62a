//! The layout of all float codecs: a header, a bitmap of the values that are not zero, and one field for each of
//! those, all equally wide.
//!
//! A field is the sign (left out if no value has one), how far the exponent lies below the largest one, and the
//! mantissa without the low bits that no value uses. Any value can be read alone: its field is the one whose
//! number is the count of set bits before its own.

use buddy_core::{Entry, words16, words32};

use crate::{
    Error, Stream,
    bits::{LsbReader, LsbWriter},
    lanes::{self, MOST},
};

/// Header bytes: base exponent, code width and flags, trimmed mantissa bits.
const HEADER_BITS: u32 = 24;
/// Flag: fields begin with a sign.
const SIGNED: u64 = 1 << 6;
/// Flag: no value is zero, and there is no bitmap.
const DENSE: u64 = 1 << 7;

/// What is needed of all values, in their own width so that the loop fills the vectors: how many are not zero, all
/// bits that any has, and the smallest and largest exponent of those not zero, in place.
macro_rules! look {
    ($word:ty, $words:expr, $exponent:expr) => {{
        let (mut values, mut bits, mut low, mut high): ($word, $word, $word, $word) = (0, 0, <$word>::MAX, 0);
        for value in $words {
            let exponent = value & $exponent;
            values += <$word>::from(value != 0);
            bits |= value;
            low = low.min(if value == 0 { <$word>::MAX } else { exponent });
            high = high.max(exponent);
        }
        (u32::from(values), u32::from(bits), u32::from(low), u32::from(high))
    }};
}

/// What the values of an entry have in common; enough to know the stream's length.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sparse<const E: u32, const M: u32> {
    /// Values whose bits are not all zero.
    values: u32,
    /// Largest exponent of any value, as it stands in the bits: with its bias.
    base: u32,
    /// Bits that hold every distance from it.
    code_bits: u32,
    /// Whether any value has its sign set.
    signed: bool,
    /// Low mantissa bits that are zero in every value.
    trimmed: u32,
}

impl<const E: u32, const M: u32> Sparse<E, M> {
    /// Bits of a value.
    const WIDTH: usize = (1 + E + M) as usize;
    /// Values in an entry.
    const COUNT: usize = 1024 / Self::WIDTH;
    /// The longest stream: all values but one, in full.
    pub(super) const MAX_BITS: u32 = HEADER_BITS + Self::COUNT as u32 + 1024 - Self::WIDTH as u32;
    const EXPONENT: u64 = (1 << E) - 1;
    const MANTISSA: u64 = (1 << M) - 1;

    /// The values, in the low bits of 32; zeros after them.
    #[inline(always)]
    fn values(entry: &Entry) -> [u32; 64] {
        let mut values = [0; 64];
        if Self::WIDTH == 16 {
            values = words16(entry).map(u32::from);
        } else {
            values[..32].copy_from_slice(&words32(entry));
        }
        values
    }

    /// Bit i is set where value i is not zero.
    #[inline(always)]
    fn nonzero(values: &[u32; 64]) -> u64 {
        let mut bits = [0; 8];
        for (byte, values) in bits.iter_mut().zip(values.as_chunks::<8>().0) {
            *byte = values.iter().rev().fold(0, |bits, &value| bits << 1 | u8::from(value != 0));
        }
        u64::from_le_bytes(bits)
    }

    /// The field of a value; of zero, anything.
    #[inline(always)]
    fn field(&self, value: u32) -> u32 {
        let mantissa_bits = M - self.trimmed;
        let code = self.base.wrapping_sub(value >> M & Self::EXPONENT as u32);
        let sign = (value >> (E + M)) << (mantissa_bits + self.code_bits);
        let mantissa = (value & Self::MANTISSA as u32) >> self.trimmed;
        sign | code << mantissa_bits | mantissa
    }

    /// Looks at an entry.
    #[inline(always)]
    pub(super) fn of(entry: &Entry) -> Self {
        let (values, bits, low, high) = if Self::WIDTH == 16 {
            look!(u16, words16(entry), (Self::EXPONENT << M) as u16)
        } else {
            look!(u32, words32(entry), (Self::EXPONENT << M) as u32)
        };
        Self {
            values,
            base: high >> M,
            code_bits: if values == 0 { 0 } else { 32 - ((high - low) >> M).leading_zeros() },
            signed: bits >> (E + M) != 0,
            trimmed: (bits | 1 << M).trailing_zeros(),
        }
    }

    /// Length of the stream.
    #[inline(always)]
    pub(super) fn bits(&self) -> u32 {
        HEADER_BITS + if self.dense() { 0 } else { Self::COUNT as u32 } + self.values * self.field_bits()
    }

    #[inline(always)]
    fn dense(&self) -> bool {
        self.values == Self::COUNT as u32
    }

    #[inline(always)]
    fn field_bits(&self) -> u32 {
        u32::from(self.signed) + self.code_bits + M - self.trimmed
    }

    /// Replaces `stream` by that of the entry that was looked at.
    #[inline(always)]
    pub(super) fn write(&self, entry: &Entry, stream: &mut Stream) {
        let flags = if self.signed { SIGNED } else { 0 } | if self.dense() { DENSE } else { 0 };
        let mut writer = LsbWriter::new(stream);
        writer.put(u64::from(self.base), 8);
        writer.put(u64::from(self.code_bits) | flags, 8);
        writer.put(u64::from(self.trimmed), 8);
        let values = Self::values(entry);
        let map = Self::nonzero(&values);
        if !self.dense() {
            writer.put(map, Self::COUNT as u32);
        }
        let fields = values.map(|value| self.field(value));
        for i in lanes::ones(map) {
            writer.put_short(u64::from(fields[i]), self.field_bits());
        }
        writer.finish();
    }

    /// Rebuilds an entry. A distance that passes exponent zero wraps around; no encoder writes one.
    #[inline(always)]
    pub(super) fn read(stream: &[u8]) -> Result<Entry, Error> {
        let mut reader = LsbReader::new(stream);
        let (base, shape, trimmed) = (reader.take(8)?, reader.take(8)?, reader.take(8)? as u32);
        let code_bits = (shape & 0x3f) as u32;
        if code_bits > E || trimmed > M || base > Self::EXPONENT {
            return Err(Error::Invalid { at: 0, what: "a field that no float has" });
        }
        let all = u64::MAX >> (64 - Self::COUNT);
        let map = if shape & DENSE != 0 { all } else { reader.take(Self::COUNT as u32)? };
        let mantissa_bits = M - trimmed;
        let field_bits = u32::from(shape & SIGNED != 0) + code_bits + mantissa_bits;
        let mut values = [0; MOST];
        for i in lanes::ones(map) {
            let field = if field_bits == 0 { 0 } else { reader.take(field_bits)? };
            let code = field >> mantissa_bits & ((1 << code_bits) - 1);
            let exponent = base.wrapping_sub(code) & Self::EXPONENT;
            let mantissa = (field & ((1 << mantissa_bits) - 1)) << trimmed;
            values[i] = field >> (mantissa_bits + code_bits) << (E + M) | exponent << M | mantissa;
        }
        Ok(if Self::WIDTH == 16 { lanes::join::<16>(&values) } else { lanes::join::<32>(&values) })
    }
}
