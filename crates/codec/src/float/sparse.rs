//! The layout of all float codecs: a header, a bitmap of non-zero values, and a fixed-width field
//! for each of those.
//!
//! A field holds the sign (omitted if no value is negative), the exponent's distance below the
//! largest, and the mantissa without low bits that are zero in all values. Any value can be read
//! alone: its field index is the population count of the bitmap below it.

use buddy_core::{Entry, words16, words32};

use crate::{
    Error, Stream,
    bits::{LsbReader, LsbWriter},
    lanes::{self, MAX_LANES},
};

/// Header bits: base exponent, code width and flags, trimmed mantissa bits.
const HEADER_BITS: u32 = 24;
/// Flag: fields include a sign.
const SIGNED: u64 = 1 << 6;
/// Flag: no value is zero, so there is no bitmap.
const DENSE: u64 = 1 << 7;

/// Scans the values at their own width, so that the loop vectorises. Gives the number of non-zero
/// values, the OR of all bits, and the smallest and largest exponent of non-zero values, unshifted.
macro_rules! scan {
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

/// Properties of an entry's values that determine the stream length.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sparse<const E: u32, const M: u32> {
    /// Number of non-zero values.
    values: u32,
    /// Largest biased exponent.
    base: u32,
    /// Bits of an exponent's distance from `base`.
    code_bits: u32,
    /// True if any sign bit is set.
    signed: bool,
    /// Low mantissa bits that are zero in every value.
    trimmed: u32,
}

impl<const E: u32, const M: u32> Sparse<E, M> {
    /// Bits of a value.
    const WIDTH: usize = (1 + E + M) as usize;
    /// Values in an entry.
    const COUNT: usize = 1024 / Self::WIDTH;
    /// The longest stream: all values but one, untrimmed.
    pub(super) const MAX_BITS: u32 = HEADER_BITS + Self::COUNT as u32 + 1024 - Self::WIDTH as u32;
    const EXPONENT: u64 = (1 << E) - 1;
    const MANTISSA: u64 = (1 << M) - 1;

    /// Returns the values in the low bits of `u32`s, followed by zeros.
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

    /// Returns the bitmap of non-zero values.
    #[inline(always)]
    fn nonzero(values: &[u32; 64]) -> u64 {
        let mut bits = [0; 8];
        for (byte, values) in bits.iter_mut().zip(values.as_chunks::<8>().0) {
            *byte = values.iter().rev().fold(0, |bits, &value| bits << 1 | u8::from(value != 0));
        }
        u64::from_le_bytes(bits)
    }

    /// Returns the field of a value; unspecified for zero.
    #[inline(always)]
    fn field(&self, value: u32) -> u32 {
        let mantissa_bits = M - self.trimmed;
        let code = self.base.wrapping_sub(value >> M & Self::EXPONENT as u32);
        let sign = (value >> (E + M)) << (mantissa_bits + self.code_bits);
        let mantissa = (value & Self::MANTISSA as u32) >> self.trimmed;
        sign | code << mantissa_bits | mantissa
    }

    /// Scans an entry.
    #[inline(always)]
    pub(super) fn scan(entry: &Entry) -> Self {
        let (values, bits, low, high) = if Self::WIDTH == 16 {
            scan!(u16, words16(entry), (Self::EXPONENT << M) as u16)
        } else {
            scan!(u32, words32(entry), (Self::EXPONENT << M) as u32)
        };
        Self {
            values,
            base: high >> M,
            code_bits: if values == 0 { 0 } else { 32 - ((high - low) >> M).leading_zeros() },
            signed: bits >> (E + M) != 0,
            trimmed: (bits | 1 << M).trailing_zeros(),
        }
    }

    /// Returns the stream length in bits.
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

    /// Encodes the scanned entry into `stream`.
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

    /// Decodes an entry. A distance below exponent zero wraps around; encoders never write one.
    #[inline(always)]
    pub(super) fn read(stream: &[u8]) -> Result<Entry, Error> {
        let mut reader = LsbReader::new(stream);
        let (base, shape, trimmed) = (reader.take(8)?, reader.take(8)?, reader.take(8)? as u32);
        let code_bits = (shape & 0x3f) as u32;
        if code_bits > E || trimmed > M || base > Self::EXPONENT {
            return Err(Error::Invalid { at: 0, what: "field widths exceed the float type" });
        }
        let all = u64::MAX >> (64 - Self::COUNT);
        let map = if shape & DENSE != 0 { all } else { reader.take(Self::COUNT as u32)? };
        let mantissa_bits = M - trimmed;
        let field_bits = u32::from(shape & SIGNED != 0) + code_bits + mantissa_bits;
        let mut values = [0; MAX_LANES];
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
