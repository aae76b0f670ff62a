//! Doubles as integer multiples of a unit (`docs/reference/format.md`, "scaled64").
//!
//! Many doubles are quotients: a random integer over the largest one, cents over a hundred, an
//! integer over a power of two. The numerator has far fewer bits than the quotient.

use std::fmt;

use buddy_core::{Entry, Layout, SizeClass, is_zero};
use serde::{Deserialize, Serialize};

use super::{
    forms::{ABSENT, Content, Forms, MAX_BITS, Payload},
    words,
};
use crate::{EntryCodec, Error, Stream, codec::require_layout_a};

const N: usize = 16;
/// Adding and subtracting it rounds to an integer: 1.5 times 2^52.
const ROUNDS: f64 = 6_755_399_441_055_744.0;
/// Common divisors other than powers of two: decimals, and the maxima of random generators.
const DIVISORS: [u64; 14] = [
    10,
    100,
    1000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
    1_000_000_000,
    0x7fff,
    0xff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
];
/// Sample entries used to search divisors.
const SEARCH_ENTRIES: usize = 256;

/// Integer multiples of a unit, 16 per entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Parameters", into = "Parameters")]
pub struct Scaled {
    learned: Parameters,
    /// The divisor as the bits of a double.
    divisor: u64,
    forms: Forms<N>,
}

/// Serialized parameters: a double is an integer divided by `divisor` times 2 to the `exponent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    divisor: u64,
    exponent: i16,
    /// Minimum of the integers, subtracted from all (frame of reference).
    least: i64,
}

impl From<Scaled> for Parameters {
    fn from(codec: Scaled) -> Self {
        codec.learned
    }
}

impl TryFrom<Parameters> for Scaled {
    type Error = Error;

    fn try_from(learned: Parameters) -> Result<Self, Error> {
        let possible = (1..1 << 32).contains(&learned.divisor) && (-960..=960).contains(&learned.exponent);
        if !possible || learned.least.unsigned_abs() > 1 << 51 {
            let Parameters { divisor, exponent, least } = learned;
            let what = format!(
                "no scaled64: divisor {divisor} (1 to 2^32), exponent {exponent} (within 960), least {least} (within 2^51)"
            );
            return Err(Error::Parameters(what));
        }
        Ok(Self::of(learned))
    }
}

impl Scaled {
    fn of(learned: Parameters) -> Self {
        let power = f64::from_bits(((1023 + i64::from(learned.exponent)) as u64) << 52);
        let divisor = (learned.divisor as f64 * power).to_bits();
        Self { learned, divisor, forms: Forms::new(Payload::Word, 51, |_| Vec::new()) }
    }

    /// Finds the divisor and minimum with the fewest bytes over a sample; ties go to the first.
    /// Tries powers of two that make nearly all or all words integral, then common divisors.
    pub fn train(sample: &[Entry]) -> Self {
        let step = sample.len().div_ceil(SEARCH_ENTRIES).max(1);
        let few: Vec<Entry> = sample.iter().step_by(step).filter(|entry| !is_zero(entry)).copied().collect();
        let powers = fractions(&few).into_iter().map(|exponent| (1, exponent));
        let divisors = powers.chain(DIVISORS.map(|divisor| (divisor, 0)));
        let judged = divisors.flat_map(|(divisor, exponent)| {
            let tried = Self::of(Parameters { divisor, exponent, least: 0 });
            tried
                .leasts(&few)
                .map(|least| Self { learned: Parameters { least, ..tried.learned }, ..tried.clone() })
        });
        let bytes = |codec: &Self| {
            few.iter().map(|entry| SizeClass::from_bits(codec.size_bits(entry)).bytes()).sum::<usize>()
        };
        judged.min_by_key(bytes).expect("at least one divisor")
    }

    /// Returns the divisor as the bits of a double, and the minimum.
    pub(super) fn unit(&self) -> (u64, i64) {
        (self.divisor, self.learned.least)
    }

    pub(super) fn forms(&self) -> &Forms<N> {
        &self.forms
    }

    /// Returns the minimum count of a sample, and a low quantile.
    fn leasts(&self, sample: &[Entry]) -> [i64; 2] {
        let counts = sample.iter().flat_map(words::split::<N>).filter_map(|word| {
            let (count, whole) = self.count(word);
            whole.then_some(count)
        });
        let mut counts: Vec<i64> = counts.collect();
        counts.sort_unstable();
        [0, counts.len() / 50].map(|at| counts.get(at).copied().unwrap_or(0))
    }

    /// Returns the nearest count to a word, and whether it reproduces the word exactly.
    #[inline(always)]
    fn count(&self, word: u64) -> (i64, bool) {
        let divisor = f64::from_bits(self.divisor);
        // Subnormals are treated as zero: arithmetic on them is a hundred times slower.
        let normal = if word >> 52 & 0x7ff == 0 { 0 } else { word };
        let rounded = f64::from_bits(normal) * divisor + ROUNDS;
        let count = rounded.to_bits().wrapping_sub(ROUNDS.to_bits()) as i64;
        // The sum has steps of one only between 2^52 and 2^53.
        let whole = rounded.to_bits() >> 52 == ROUNDS.to_bits() >> 52;
        (count, whole & (((rounded - ROUNDS) / divisor).to_bits() == word))
    }

    /// Returns the entry's words as counts above the minimum.
    #[inline(always)]
    fn numbers(&self, entry: &Entry) -> [u64; N] {
        let words = words::split::<N>(entry);
        let mut numbers = [0; N];
        for i in 0..N {
            let (count, whole) = self.count(words[i]);
            numbers[i] = if whole { count.wrapping_sub(self.learned.least) as u64 } else { ABSENT };
        }
        numbers
    }

    /// Returns the word of a number.
    #[inline(always)]
    fn word(&self, number: u64) -> u64 {
        // The magnitude is below 2^52, so the double is exact.
        let count = number.wrapping_add(self.learned.least as u64) as i64;
        (count as f64 / f64::from_bits(self.divisor)).to_bits()
    }
}

impl fmt::Display for Scaled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.learned {
            Parameters { divisor: 1, exponent, .. } => write!(f, "divided by 2^{exponent}"),
            Parameters { divisor, .. } => write!(f, "divided by {divisor}"),
        }
    }
}

/// Returns the number of fraction bits in the words of a sample: of nearly all, and of all.
fn fractions(sample: &[Entry]) -> Vec<i16> {
    let exponent = |word: u64| {
        let (exponent, mantissa) = ((word >> 52 & 0x7ff) as i32, word & ((1 << 52) - 1));
        let zeros = if mantissa == 0 { 52 } else { mantissa.trailing_zeros() as i32 };
        (1..0x7ff).contains(&exponent).then_some(1075 - exponent - zeros)
    };
    let mut exponents: Vec<i32> = sample.iter().flat_map(words::split::<N>).filter_map(exponent).collect();
    exponents.sort_unstable();
    let at = |share: usize| exponents.get((exponents.len() * share / 100).saturating_sub(1)).copied();
    let mut found: Vec<i16> =
        [90, 97, 100].into_iter().filter_map(at).map(|exponent| exponent.clamp(-960, 960) as i16).collect();
    found.dedup();
    found
}

impl EntryCodec for Scaled {
    fn max_bits(&self) -> u32 {
        MAX_BITS
    }

    fn parameter_bytes(&self) -> usize {
        size_of::<Parameters>()
    }

    #[inline(always)]
    fn size_bits(&self, entry: &Entry) -> u32 {
        self.forms.size(&self.numbers(entry))
    }

    #[inline(always)]
    fn encode(&self, entry: &Entry, stream: &mut Stream) {
        self.encode_within(entry, MAX_BITS, stream);
    }

    #[inline(always)]
    fn encode_within(&self, entry: &Entry, limit: u32, stream: &mut Stream) -> bool {
        self.forms.write(entry, &self.numbers(entry), limit, stream)
    }

    #[inline(always)]
    fn decode(&self, stream: &[u8], layout: Layout) -> Result<Entry, Error> {
        require_layout_a(layout)?;
        let (numbers, replaced) = match self.forms.read(stream)? {
            Content::Raw(entry) => return Ok(entry),
            Content::Numbers(numbers, replaced) => (numbers, replaced),
        };
        let mut words = numbers.map(|number| self.word(number));
        replaced.replace(&mut words);
        Ok(words::join(&words))
    }
}
