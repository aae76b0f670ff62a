//! Packing of numbers into one of sixteen forms, each with fixed field widths and a few exceptions.
//!
//! A form fills a size class: 8, 32, 64 or 96 bytes. Field widths follow from the codec's
//! parameters, never from the entry, so the 4-bit form number locates every field. A number too
//! large for its field is an exception: its position and the remaining bits are stored at the end.
//! The last form is the raw entry.

use buddy_core::Entry;

use super::words;
use crate::{
    Error, Stream,
    bits::{LsbReader, LsbWriter},
    simd::count_above,
};

/// Bits of the form number.
const NAME_BITS: u32 = 4;
/// The form of an entry that fits no other: its 1024 bits.
const RAW: usize = 15;
/// Per form: stream bits and maximum number of exceptions.
const FORM_LIMITS: [(u32, usize); RAW] = [
    (64, 0),
    (256, 0),
    (256, 1),
    (256, 2),
    (256, 3),
    (512, 0),
    (512, 1),
    (512, 2),
    (512, 4),
    (512, 6),
    (768, 0),
    (768, 1),
    (768, 2),
    (768, 4),
    (768, 6),
];
/// Form numbers by class.
const CLASSES: [std::ops::Range<usize>; 4] = [0..1, 1..5, 5..10, 10..15];

/// Returns the sector index of a form: 0 for one sector (and for form 0), 2 for three.
pub(super) const fn sectors(form: usize) -> usize {
    FORM_LIMITS[form].0.div_ceil(256) as usize
}

/// The number of a word that is not in the table; exceeds every field.
pub(super) const ABSENT: u64 = u64::MAX;

/// Largest number of exceptions in any form.
pub(super) const MAX_EXCEPTIONS: u32 = 6;

/// The longest stream: a raw entry.
pub(super) const MAX_BITS: u32 = NAME_BITS + 1024;

/// Payload of an exception, besides its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Payload {
    /// The number's bits above its field.
    High,
    /// The entry's word.
    Word,
}

/// Field widths of one form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Form<const N: usize> {
    widths: [u8; N],
    /// Number of leading fields with widths of their own.
    firsts: usize,
    /// Largest number that fits in each field.
    largest: [u64; N],
    /// Maximum number of exceptions.
    exceptions: usize,
    /// Payload bits of an exception.
    rest_bits: u32,
    /// Bits of the whole stream.
    bits: u32,
}

/// A form as the kernels see it: only the leading fields may have another width.
pub(super) struct Shape {
    pub(super) width: u8,
    pub(super) first: u8,
    pub(super) rest_bits: u32,
    pub(super) exceptions: usize,
    pub(super) bits: u32,
}

/// All forms of one codec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Forms<const N: usize> {
    forms: [Option<Form<N>>; RAW],
    rest: Payload,
}

/// Decoded contents of a stream: the raw entry, or numbers and the words that replace some of them.
#[allow(clippy::large_enum_variant)] // short-lived, on the stack
pub(super) enum Content<const N: usize> {
    Raw(Entry),
    Numbers([u64; N], Words),
}

/// Replacement words and their positions; the first `count` are valid.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Words {
    count: usize,
    words: [(u8, u64); 6],
}

impl Words {
    /// Writes the words to their positions.
    #[inline(always)]
    pub(super) fn replace<const N: usize>(&self, words: &mut [u64; N]) {
        for &(place, word) in &self.words[..self.count] {
            words[place as usize] = word;
        }
    }
}

impl<const N: usize> Form<N> {
    /// Returns how many numbers exceed their fields.
    #[inline(always)]
    fn above(&self, numbers: &[u64; N]) -> u32 {
        count_above(numbers, &self.largest)
    }

    /// Splits the fields by width: the first, the other leading ones, and the rest.
    #[inline(always)]
    fn parts<'a>(&self, fields: &'a [u64; N]) -> [(&'a [u64], u32); 3] {
        let (first, fields) = fields.split_at(self.firsts.min(1));
        let (fellows, others) = fields.split_at(self.firsts.saturating_sub(1));
        [
            (first, self.widths[0].into()),
            (fellows, self.widths[1].into()),
            (others, self.widths[N - 1].into()),
        ]
    }

    /// Mutable version of [`Self::parts`].
    #[inline(always)]
    fn parts_mut<'a>(&self, fields: &'a mut [u64; N]) -> [(&'a mut [u64], u32); 3] {
        let (first, fields) = fields.split_at_mut(self.firsts.min(1));
        let (fellows, others) = fields.split_at_mut(self.firsts.saturating_sub(1));
        [
            (first, self.widths[0].into()),
            (fellows, self.widths[1].into()),
            (others, self.widths[N - 1].into()),
        ]
    }
}

impl<const N: usize> Forms<N> {
    /// Creates the forms of a codec. `fixed` gives the widths of the leading fields by sector
    /// index. The rest share the largest width that fits the class, at most `most`. A form without
    /// room for its fields does not exist.
    pub(super) fn new(rest: Payload, most: u32, fixed: impl Fn(usize) -> Vec<u8>) -> Self {
        let form = |index: usize| {
            let (room, exceptions) = FORM_LIMITS[index];
            let fixed = fixed(sectors(index));
            let fixed_bits: u32 = fixed.iter().map(|&width| u32::from(width)).sum();
            let narrowest = fixed.iter().copied().map(u32::from).min().unwrap_or(u32::MAX);
            let rest_bits =
                |width: u32| words::bits(N) - if rest == Payload::High { width.min(narrowest) } else { 0 };
            let bits = |width: u32| {
                let fields = fixed_bits + (N - fixed.len()) as u32 * width;
                NAME_BITS + fields + exceptions as u32 * (N.ilog2() + rest_bits(width))
            };
            let width = (0..=most).rev().find(|&width| bits(width) <= room)?;
            let widths = std::array::from_fn(|i| fixed.get(i).copied().unwrap_or(width as u8));
            let largest = widths.map(|width: u8| u64::MAX.unbounded_shr(64 - u32::from(width)));
            Some(Form {
                widths,
                firsts: fixed.len(),
                largest,
                exceptions,
                rest_bits: rest_bits(width),
                bits: bits(width),
            })
        };
        Self { forms: std::array::from_fn(form), rest }
    }

    /// Returns the forms; `None` for those that do not exist.
    pub(super) fn shapes(&self) -> impl Iterator<Item = Option<Shape>> {
        self.forms.iter().map(|form| {
            form.as_ref().map(|form| Shape {
                width: form.widths[N - 1],
                first: form.widths[1],
                rest_bits: form.rest_bits,
                exceptions: form.exceptions,
                bits: form.bits,
            })
        })
    }

    /// Returns the first form that fits and its number. `above` counts the exceptions of a form.
    #[inline(always)]
    fn choose(&self, above: impl Fn(&Form<N>) -> u32) -> Option<(usize, &Form<N>)> {
        for class in &CLASSES {
            // The first form of a class has the widest fields: if its exceptions exceed every form,
            // skip the class.
            let Some(widest) = &self.forms[class.start] else { continue };
            let too_large = above(widest);
            if too_large == 0 {
                return Some((class.start, widest));
            }
            if too_large > FORM_LIMITS[class.end - 1].1 as u32 {
                continue;
            }
            for (index, form) in (class.start..class.end).zip(&self.forms[class.start..class.end]).skip(1) {
                // Narrower fields never have fewer exceptions.
                if let Some(form) = form
                    && too_large <= form.exceptions as u32
                    && above(form) <= form.exceptions as u32
                {
                    return Some((index, form));
                }
            }
        }
        None
    }

    /// Returns the stream size in bits of these numbers.
    #[inline(always)]
    pub(super) fn size(&self, numbers: &[u64; N]) -> u32 {
        self.choose(|form| form.above(numbers)).map_or(MAX_BITS, |(_, form)| form.bits)
    }

    /// Returns the stream size if all fields of a form are equal; `above` counts the numbers over a
    /// limit.
    #[inline(always)]
    pub(super) fn size_by(&self, above: impl Fn(u64) -> u32) -> u32 {
        self.choose(|form| above(form.largest[0])).map_or(MAX_BITS, |(_, form)| form.bits)
    }

    /// Writes the numbers of `entry` if the stream takes at most `limit` bits; returns whether it
    /// does.
    #[inline(always)]
    pub(super) fn write(&self, entry: &Entry, numbers: &[u64; N], limit: u32, stream: &mut Stream) -> bool {
        let found = self.choose(|form| form.above(numbers));
        if found.map_or(MAX_BITS, |(_, form)| form.bits) > limit {
            return false;
        }
        let mut writer = LsbWriter::new(stream);
        match found {
            Some((index, form)) => {
                writer.put(index as u64, NAME_BITS);
                self.write_fields(form, numbers, &mut writer);
                self.write_exceptions(form, entry, numbers, &mut writer);
            }
            None => {
                writer.put(RAW as u64, NAME_BITS);
                words::split::<16>(entry).iter().for_each(|&word| writer.put(word, 64));
            }
        }
        writer.finish();
        true
    }

    #[inline(always)]
    fn write_fields(&self, form: &Form<N>, numbers: &[u64; N], writer: &mut LsbWriter<'_>) {
        let mut fields = *numbers;
        if form.exceptions > 0 {
            for (field, &largest) in fields.iter_mut().zip(&form.largest) {
                let absent = self.rest == Payload::Word && *field == ABSENT;
                *field = if absent { 0 } else { *field & largest };
            }
        }
        for (fields, width) in form.parts(&fields) {
            writer.put_all(fields, width);
        }
    }

    #[inline(always)]
    fn write_exceptions(
        &self,
        form: &Form<N>,
        entry: &Entry,
        numbers: &[u64; N],
        writer: &mut LsbWriter<'_>,
    ) {
        if form.exceptions == 0 {
            return;
        }
        let mut over = 0u32;
        for (i, (number, largest)) in numbers.iter().zip(&form.largest).enumerate() {
            over |= u32::from(number > largest) << i;
        }
        let words: [u64; N] = words::split(entry);
        for _ in 0..form.exceptions {
            // Unused exceptions repeat the last one.
            let place = over.trailing_zeros() as usize % N;
            over = if over.count_ones() > 1 { over & (over - 1) } else { over };
            let rest = match self.rest {
                Payload::High => numbers[place].unbounded_shr(form.widths[place].into()),
                Payload::Word => words[place],
            };
            writer.put(place as u64, N.ilog2());
            if form.rest_bits > 0 {
                writer.put(rest, form.rest_bits);
            }
        }
    }

    /// Reads a stream written by [`write`](Self::write).
    #[inline(always)]
    pub(super) fn read(&self, stream: &[u8]) -> Result<Content<N>, Error> {
        let mut reader = LsbReader::new(stream);
        let index = reader.take(NAME_BITS)? as usize;
        if index == RAW {
            let mut words = [0; 16];
            for word in &mut words {
                *word = reader.take(64)?;
            }
            return Ok(Content::Raw(words::join(&words)));
        }
        let form = self.forms[index].as_ref();
        let form = form.ok_or(Error::Invalid { at: 0, what: "the codec has no such form" })?;
        reader.need(form.bits as usize)?;
        let mut numbers = [0; N];
        for (fields, width) in form.parts_mut(&mut numbers) {
            reader.take_all(fields, width)?;
        }
        let mut replaced = Words::default();
        for _ in 0..form.exceptions {
            let place = reader.take(N.ilog2())? as usize;
            let rest = if form.rest_bits == 0 { 0 } else { reader.take(form.rest_bits)? };
            match self.rest {
                Payload::High => {
                    let width = u32::from(form.widths[place]);
                    let low = if width == 0 { 0 } else { numbers[place] & u64::MAX >> (64 - width) };
                    numbers[place] = (low | rest.unbounded_shl(width)) & words::mask(N);
                }
                Payload::Word => {
                    replaced.words[replaced.count] = (place as u8, rest);
                    replaced.count += 1;
                }
            }
        }
        Ok(Content::Numbers(numbers, replaced))
    }
}
