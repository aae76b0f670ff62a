//! Residuals of a stride predictor (`docs/reference/format.md`, "stride32, stride64").
//!
//! Suits data with a period of a few words (mesh cells, matrix columns, records) and smooth fields,
//! whose first or second differences are small.

use std::fmt;

use buddy_core::{Entry, Layout, SizeClass, is_zero};
use serde::{Deserialize, Serialize};

use super::{
    forms::{Content, Forms, MAX_BITS, Payload},
    predictor::{self, Predictor},
    words,
};
use crate::{EntryCodec, Error, Stream, codec::require_layout_a};

/// Sample entries used to find the widths of the leading fields.
const SEARCH_ENTRIES: usize = 256;

/// Residuals of words; `N` words per entry, 32 or 16.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Parameters", into = "Parameters")]
pub struct Stride<const N: usize> {
    learned: Parameters,
    forms: Forms<N>,
}

/// Serialized parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    /// Distance in words to the reference word.
    stride: u8,
    /// 1 for first differences, 2 for second differences.
    order: u8,
    /// Low bits that are zero in most words; rotated to the top.
    shift: u8,
    /// Widths of the leading fields in forms of one, two and three sectors.
    first: [u8; 3],
}

impl Parameters {
    #[inline(always)]
    fn predictor(&self) -> Predictor {
        let Self { stride, order, shift, .. } = *self;
        Predictor { stride, order, shift }
    }
}

impl<const N: usize> From<Stride<N>> for Parameters {
    fn from(codec: Stride<N>) -> Self {
        codec.learned
    }
}

impl<const N: usize> TryFrom<Parameters> for Stride<N> {
    type Error = Error;

    fn try_from(learned: Parameters) -> Result<Self, Error> {
        let Parameters { stride, order, shift, first } = learned;
        let bits = words::bits(N);
        let possible = (1..=2).contains(&order)
            && (1..=N / 2).contains(&(usize::from(stride) * usize::from(order)))
            && u32::from(shift) < bits
            && first.iter().all(|&width| u32::from(width) <= bits);
        if !possible {
            let what = format!(
                "no stride codec of {bits} bits: stride {stride}, order {order}, shift {shift}, first {first:?}"
            );
            return Err(Error::Parameters(what));
        }
        Ok(Self::of(learned))
    }
}

impl<const N: usize> Stride<N> {
    fn of(learned: Parameters) -> Self {
        let firsts = usize::from(learned.stride * learned.order);
        let forms = Forms::new(Payload::High, words::bits(N), |sectors| {
            let mut fixed = vec![learned.first[sectors - 1]; firsts];
            fixed[0] = words::bits(N) as u8;
            fixed
        });
        Self { learned, forms }
    }

    /// Finds the stride, order and widths with the fewest bytes over a sample; ties go to the
    /// first. Tries first differences at strides up to half an entry, then second differences up to
    /// a quarter.
    pub fn train(sample: &[Entry]) -> Self {
        let step = sample.len().div_ceil(SEARCH_ENTRIES).max(1);
        let few: Vec<Entry> = sample.iter().step_by(step).filter(|entry| !is_zero(entry)).copied().collect();
        let shift = common_zeros::<N>(&few);
        let shapes = (1..=2).flat_map(|order| (1..=N / 2).map(move |stride| (stride, order)));
        let shapes = shapes.filter(|(stride, order)| stride * order <= N / 2);
        let trained = shapes.map(|(stride, order)| Self::with_widths(stride as u8, order as u8, shift, &few));
        let best = trained.min_by_key(|(bytes, _)| *bytes);
        best.expect("at least one predictor").1
    }

    /// Returns the stride, the order and the shift.
    pub(super) fn shape(&self) -> (u8, u8, u8) {
        (self.learned.stride, self.learned.order, self.learned.shift)
    }

    pub(super) fn forms(&self) -> &Forms<N> {
        &self.forms
    }

    /// Returns the codec of one predictor with its best widths, and its bytes over a sample.
    fn with_widths(stride: u8, order: u8, shift: u8, sample: &[Entry]) -> (usize, Self) {
        let mut learned = Parameters { stride, order, shift, first: [0; 3] };
        let sample: Vec<[u64; N]> =
            sample.iter().map(|entry| predictor::residuals(learned.predictor(), entry)).collect();
        let firsts = usize::from(stride * order);
        if firsts > 1 {
            let longest = |all: &[u64; N]| {
                (64 - all[1..firsts].iter().fold(0, |any, number| any | number).leading_zeros()) as u8
            };
            let mut longest: Vec<u8> = sample.iter().map(longest).collect();
            longest.sort_unstable();
            for sectors in 1..=3 {
                learned.first[sectors - 1] = Self::first_width(learned, sectors, &longest, &sample);
            }
        }
        let codec = Self::of(learned);
        let bytes =
            sample.iter().map(|numbers| SizeClass::from_bits(codec.forms.size(numbers)).bytes()).sum();
        (bytes, codec)
    }

    /// Returns the width of the leading fields with which most entries fit in `sectors`; ties go to
    /// the narrowest.
    fn first_width(learned: Parameters, sectors: usize, longest: &[u8], sample: &[[u64; N]]) -> u8 {
        let quantile = |share: usize| longest.get((longest.len() * share / 100).saturating_sub(1)).copied();
        let fits = |&first: &u8| {
            let mut tried = learned;
            tried.first[sectors - 1] = first;
            let forms = Self::of(tried).forms;
            sample.iter().filter(|numbers| forms.size(numbers) <= 256 * sectors as u32).count()
        };
        // `max_by_key` returns the last of equal elements.
        [100, 98, 90, 75, 50].into_iter().filter_map(quantile).max_by_key(fits).unwrap_or(0)
    }
}

impl<const N: usize> fmt::Display for Stride<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.learned.predictor().describe::<N>(f)
    }
}

/// Returns the number of low bits that are zero in nearly every word.
fn common_zeros<const N: usize>(sample: &[Entry]) -> u8 {
    let words = sample.iter().flat_map(words::split::<N>).filter(|&word| word != 0);
    let mut zeros: Vec<u8> = words.map(|word| word.trailing_zeros() as u8).collect();
    zeros.sort_unstable();
    zeros.get(zeros.len() / 50).copied().unwrap_or(0)
}

impl<const N: usize> EntryCodec for Stride<N> {
    fn max_bits(&self) -> u32 {
        MAX_BITS
    }

    fn parameter_bytes(&self) -> usize {
        size_of::<Parameters>()
    }

    #[inline(always)]
    fn size_bits(&self, entry: &Entry) -> u32 {
        self.forms.size(&predictor::differences(self.learned.predictor(), entry))
    }

    #[inline(always)]
    fn encode(&self, entry: &Entry, stream: &mut Stream) {
        self.encode_within(entry, MAX_BITS, stream);
    }

    #[inline(always)]
    fn encode_within(&self, entry: &Entry, limit: u32, stream: &mut Stream) -> bool {
        self.forms.write(entry, &predictor::residuals(self.learned.predictor(), entry), limit, stream)
    }

    #[inline(always)]
    fn decode(&self, stream: &[u8], layout: Layout) -> Result<Entry, Error> {
        require_layout_a(layout)?;
        Ok(match self.forms.read(stream)? {
            Content::Raw(entry) => entry,
            Content::Numbers(numbers, _) => {
                words::join(&predictor::reconstruct(self.learned.predictor(), &numbers))
            }
        })
    }
}
