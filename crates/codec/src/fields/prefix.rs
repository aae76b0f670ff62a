//! Residuals with a prefix code of their bit length (`docs/reference/format.md`, "prefix32,
//! prefix64").
//!
//! Suits entries whose residuals differ in length. A number of n bits takes n - 1 bits, since its
//! top bit is implied, after a code of n that is short for lengths frequent in the allocation.

use std::fmt;

use buddy_core::{Entry, Layout, SizeClass, is_zero};
use serde::{Deserialize, Serialize};

use super::{
    code::{LONGEST, PrefixCode},
    predictor::{self, Predictor},
    words,
};
use crate::{
    EntryCodec, Error, Stream,
    bits::{LsbReader, LsbWriter},
    codec::require_layout_a,
    simd::{Lengths, sum_of_lengths},
};

/// Bits of a raw entry: a one bit and the words.
const RAW_BITS: u32 = 1 + 1024;
/// Sample entries used to search strides.
const SEARCH_ENTRIES: usize = 256;
/// Number of lengths: 0 to 64 bits.
const LENGTHS: usize = 65;

/// Prefix codes of the lengths of words or residuals; `N` words per entry, 32 or 16.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Parameters", into = "Parameters")]
pub struct Prefix<const N: usize> {
    /// A stride of 0 codes the words themselves.
    predictor: Predictor,
    first: LengthCode,
    rest: LengthCode,
    /// Code bits by length, for the vector code.
    lengths: Lengths,
}

/// A code of lengths, and the total bits of a number of each length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LengthCode {
    pub(super) code: PrefixCode,
    pub(super) bits: [u8; LENGTHS],
}

/// Serialized parameters: per code the lengths, one hex digit for each number length.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    stride: u8,
    order: u8,
    first: String,
    rest: String,
}

impl<const N: usize> From<Prefix<N>> for Parameters {
    fn from(codec: Prefix<N>) -> Self {
        let Predictor { stride, order, .. } = codec.predictor;
        Self { stride, order, first: codec.first.text(), rest: codec.rest.text() }
    }
}

impl<const N: usize> TryFrom<Parameters> for Prefix<N> {
    type Error = Error;

    fn try_from(Parameters { stride, order, first, rest }: Parameters) -> Result<Self, Error> {
        let far = usize::from(stride) * usize::from(order);
        if !(1..=2).contains(&order) || far > N / 2 {
            let what = format!("no prefix codec of {} bits: stride {stride}, order {order}", words::bits(N));
            return Err(Error::Parameters(what));
        }
        let code = |text: &str| LengthCode::parse(text, words::bits(N) as usize + 1);
        Ok(Self::new(Predictor { stride, order, shift: 0 }, code(&first)?, code(&rest)?))
    }
}

impl LengthCode {
    fn new(code: PrefixCode) -> Self {
        let mut bits = [0; LENGTHS];
        for (length, (bits, &(_, code))) in bits.iter_mut().zip(code.codes()).enumerate() {
            *bits = code + length.saturating_sub(1) as u8;
        }
        Self { code, bits }
    }

    fn parse(text: &str, count: usize) -> Result<Self, Error> {
        let digits: Option<Vec<u8>> = text.chars().map(|digit| Some(digit.to_digit(16)? as u8)).collect();
        let wrong = || Error::Parameters(format!("a code of lengths has {count} hex digits, not '{text}'"));
        let lengths = digits.filter(|digits| digits.len() == count).ok_or_else(wrong)?;
        Ok(Self::new(PrefixCode::new(&lengths)?))
    }

    fn text(&self) -> String {
        self.code.codes().iter().map(|&(_, length)| format!("{length:x}")).collect()
    }

    #[inline(always)]
    fn put(&self, writer: &mut LsbWriter<'_>, number: u64) {
        let length = length(number);
        let (code, bits) = self.code.codes()[length];
        writer.put_short(code.into(), bits.into());
        if length > 1 {
            // The top bit of the number is implied.
            writer.put(number ^ 1 << (length - 1), length as u32 - 1);
        }
    }

    #[inline(always)]
    fn take(&self, reader: &mut LsbReader) -> Result<u64, Error> {
        let (length, bits) = self.code.symbols()[reader.peek() as usize % (1 << LONGEST)];
        reader.skip(bits.into())?;
        Ok(match length {
            0 | 1 => length.into(),
            _ => reader.take(u32::from(length) - 1)? | 1 << (length - 1),
        })
    }
}

/// Returns the bit length of a number.
#[inline(always)]
fn length(number: u64) -> usize {
    (64 - number.leading_zeros()) as usize
}

impl<const N: usize> Prefix<N> {
    fn new(predictor: Predictor, first: LengthCode, rest: LengthCode) -> Self {
        let bits =
            [&rest, &first].map(|code| code.bits[..=1024 / N].iter().map(|&bits| bits.into()).collect());
        let lengths = Lengths::new::<N>(
            predictor.stride.into(),
            predictor.order.into(),
            bits.each_ref().map(Vec::as_slice),
        );
        Self { predictor, first, rest, lengths }
    }

    /// Finds the stride and order with the fewest bytes, then bits, over a sample; ties go to the
    /// first. Tries the words themselves, first differences at strides up to half an entry, then
    /// second differences up to a quarter. The codes are those of the sample's lengths.
    pub fn train(sample: &[Entry]) -> Self {
        let step = sample.len().div_ceil(SEARCH_ENTRIES).max(1);
        let few: Vec<Entry> = sample.iter().step_by(step).filter(|entry| !is_zero(entry)).copied().collect();
        let shapes = [(0, 1)].into_iter().chain((1..=N / 2).map(|stride| (stride, 1)));
        let shapes = shapes.chain((1..=N / 4).map(|stride| (stride, 2)));
        let judged = shapes.map(|(stride, order)| {
            let predictor = Predictor { stride: stride as u8, order, shift: 0 };
            let codec = Self::with_predictor(predictor, &few);
            let sizes = few.iter().map(|entry| codec.size_bits(entry));
            let cost = sizes.map(|bits| (SizeClass::from_bits(bits).bytes() as u64, u64::from(bits)));
            (cost.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1)), predictor)
        });
        let (_, predictor) = judged.min_by_key(|(cost, _)| *cost).expect("at least one predictor");
        Self::with_predictor(predictor, sample)
    }

    /// Creates the codec of one predictor with codes from a sample's lengths.
    fn with_predictor(predictor: Predictor, sample: &[Entry]) -> Self {
        let count = words::bits(N) as usize + 1;
        let (mut first, mut rest) = (vec![0; count], vec![0; count]);
        for entry in sample.iter().filter(|entry| !is_zero(entry)) {
            let numbers: [u64; N] = numbers(predictor, entry);
            let (firsts, others) = numbers.split_at(predictor.firsts());
            firsts.iter().skip(1).for_each(|&number| first[length(number)] += 1);
            others.iter().for_each(|&number| rest[length(number)] += 1);
        }
        let code = |counts: &[u64]| LengthCode::new(PrefixCode::from_counts(counts));
        Self::new(predictor, code(&first), code(&rest))
    }

    /// Returns the predictor and the two codes.
    pub(super) fn parts(&self) -> (Predictor, [&LengthCode; 2]) {
        (self.predictor, [&self.first, &self.rest])
    }

    /// Returns the bits of the coded form.
    #[inline(always)]
    fn coded_bits(&self, entry: &Entry) -> u32 {
        let whole = if self.predictor.stride > 0 { words::bits(N) } else { 0 };
        1 + whole + sum_of_lengths::<N>(entry, &self.lengths).unwrap_or_else(|| self.sum_one_by_one(entry))
    }

    /// Scalar version of the same sum. Not inlined, so that the compiler does not hoist its set-up
    /// into the vector path.
    #[inline(never)]
    fn sum_one_by_one(&self, entry: &Entry) -> u32 {
        let numbers: [u64; N] = numbers(self.predictor, entry);
        let firsts = self.predictor.firsts();
        let mut bits = 0;
        for &number in &numbers[firsts.min(1)..firsts] {
            bits += u32::from(self.first.bits[length(number)]);
        }
        for &number in &numbers[firsts..] {
            bits += u32::from(self.rest.bits[length(number)]);
        }
        bits
    }
}

/// Returns the residuals of an entry except the first word, or its words at stride 0.
#[inline(always)]
fn numbers<const N: usize>(predictor: Predictor, entry: &Entry) -> [u64; N] {
    if predictor.stride == 0 { words::split(entry) } else { predictor::residuals(predictor, entry) }
}

impl<const N: usize> fmt::Display for Prefix<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.predictor {
            Predictor { stride: 0, .. } => f.write_str("lengths of words"),
            predictor => predictor.describe::<N>(f),
        }
    }
}

impl<const N: usize> EntryCodec for Prefix<N> {
    fn max_bits(&self) -> u32 {
        RAW_BITS
    }

    fn parameter_bytes(&self) -> usize {
        2 + 2 * (words::bits(N) as usize + 1)
    }

    #[inline(always)]
    fn size_bits(&self, entry: &Entry) -> u32 {
        self.coded_bits(entry).min(RAW_BITS)
    }

    #[inline(always)]
    fn encode(&self, entry: &Entry, stream: &mut Stream) {
        let raw = self.coded_bits(entry) >= RAW_BITS;
        let mut writer = LsbWriter::new(stream);
        writer.put_short(raw.into(), 1);
        if raw {
            words::split::<16>(entry).iter().for_each(|&word| writer.put(word, 64));
            return writer.finish();
        }
        let numbers: [u64; N] = numbers(self.predictor, entry);
        let (firsts, others) = numbers.split_at(self.predictor.firsts());
        if let Some((&whole, firsts)) = firsts.split_first() {
            writer.put(whole, words::bits(N));
            firsts.iter().for_each(|&number| self.first.put(&mut writer, number));
        }
        others.iter().for_each(|&number| self.rest.put(&mut writer, number));
        writer.finish();
    }

    #[inline(always)]
    fn decode(&self, stream: &[u8], layout: Layout) -> Result<Entry, Error> {
        require_layout_a(layout)?;
        let mut reader = LsbReader::new(stream);
        if reader.take(1)? == 1 {
            let mut words = [0; 16];
            for word in &mut words {
                *word = reader.take(64)?;
            }
            return Ok(words::join(&words));
        }
        let mut numbers = [0; N];
        let (firsts, others) = numbers.split_at_mut(self.predictor.firsts());
        if let Some((whole, firsts)) = firsts.split_first_mut() {
            *whole = reader.take(words::bits(N))?;
            for number in firsts {
                *number = self.first.take(&mut reader)?;
            }
        }
        for number in others {
            *number = self.rest.take(&mut reader)?;
        }
        Ok(words::join(&if self.predictor.stride == 0 {
            numbers
        } else {
            predictor::reconstruct(self.predictor, &numbers)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn columns_of_a_matrix_take_a_quarter() {
        // Rows of 27 columns: three neighbours, then a large step.
        let column = |i: u32| 5000 + i / 27 + i % 3 + i % 27 / 3 * 310;
        let columns = |at: u32| (0..32).map(|i| column(32 * at + i).to_le_bytes()).collect::<Vec<_>>();
        let sample: Vec<Entry> = (0..500).map(|at| testing::entry_of(columns(at))).collect();
        let codec = Prefix::<32>::train(&sample);
        assert!(sample.iter().all(|entry| codec.size_bits(entry) <= 256), "{codec}");
    }

    /// Records of a double, an integer and a float, and of 40 bytes in six fields: the period is
    /// found, and three sectors hold nearly all.
    #[test]
    fn the_period_of_mixed_records_is_found() {
        let mut noise = crate::samples::Noise(7);
        let mut small = |below: u64| (noise.next() >> 16) % below;
        let mut short = Vec::new();
        let mut long = Vec::new();
        for i in 0..20_000u64 {
            let x = 100.0 + i as f64 * 1e-3 + small(1 << 20) as f64 * 1e-9;
            short.extend(x.to_le_bytes());
            short.extend((i as u32).to_le_bytes());
            short.extend([1.0f32, 2.5, 12.011][small(3) as usize].to_le_bytes());
            for _ in 0..6 {
                long.extend((small(256) as f32 / 256.0 + (i % 64) as f32).to_le_bytes());
            }
            long.extend((i + 1_000_000).to_le_bytes());
            long.extend((small(3) as u32).to_le_bytes());
            long.extend((i as u32 / 8).to_le_bytes());
        }
        for (bytes, period) in [(short, "period 16 bytes"), (long, "period 40 bytes")] {
            let sample: &[Entry] = &bytes.as_chunks().0[..2048];
            let codec = Prefix::<32>::train(sample);
            assert!(codec.to_string().contains(period), "{codec}, not {period}");
            let fit = sample.iter().filter(|entry| codec.size_bits(entry) <= 768).count();
            assert!(fit > 2000, "{fit} of 2048 with {codec}");
        }
    }

    #[test]
    fn vector_and_scalar_sums_are_equal() {
        let samples = testing::samples();
        for codec in [Prefix::<32>::train(&samples), Prefix::<32>::train(&samples[..40])] {
            let sum =
                |entry| sum_of_lengths::<32>(entry, &codec.lengths).unwrap_or(codec.sum_one_by_one(entry));
            assert!(samples.iter().all(|entry| sum(entry) == codec.sum_one_by_one(entry)));
        }
        let codec = Prefix::<16>::train(&samples);
        let sum = |entry| sum_of_lengths::<16>(entry, &codec.lengths).unwrap_or(codec.sum_one_by_one(entry));
        assert!(samples.iter().all(|entry| sum(entry) == codec.sum_one_by_one(entry)));
    }

    #[test]
    fn invalid_parameters_are_refused() {
        let (first, rest) = (format!("11{}", "a".repeat(31)), "6".repeat(33));
        for (stride, order, what) in [(17, 1, "stride 17"), (9, 2, "stride 9"), (1, 3, "order 3")] {
            let learned = Parameters { stride, order, first: first.clone(), rest: rest.clone() };
            assert!(Prefix::<32>::try_from(learned).unwrap_err().to_string().contains(what));
        }
        for (code, what) in [(&first, "no complete prefix code"), (&"6".repeat(64), "33 hex digits")] {
            let learned = Parameters { stride: 1, order: 1, first: code.clone(), rest: code.clone() };
            assert!(Prefix::<32>::try_from(learned).unwrap_err().to_string().contains(what), "{code}");
        }
    }
}
